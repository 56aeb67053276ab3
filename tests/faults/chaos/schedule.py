"""What will be done to the world, and when: a pure function of a seed, written down before it
happens.

{"version": 1, "tier": "pr", "seed": 7, "rate": 200, "workloads": ["api", "events", "kinds"], "kinds": 4,
 "rounds": [[{"fault": "edge-leader-sigkill", "after_s": 3.1, "hold_s": 12.0, "pick": 0.42}, …], …]}
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, Field

Tier = Literal["pr", "nightly", "release"]


class Plan(NamedTuple):
    """What a tier asks for."""

    rounds: int  # each ends when all that was written before its end is in closed buckets
    at_once: int  # faults of a round, at most
    rate: int  # events a second, of the files
    kinds: int  # small types, beside those of the other workloads
    hold_more: float = 1.0  # how much longer than at least a fault stays


PLANS: Final[Mapping[Tier, Plan]] = {
    "pr": Plan(rounds=2, at_once=2, rate=200, kinds=4, hold_more=0.3),
    "nightly": Plan(rounds=60, at_once=4, rate=200, kinds=17),
    "release": Plan(rounds=20, at_once=2, rate=200, kinds=17),
}
AFTER_S: Final = (1.0, 10.0)  # into the round, so that two faults meet in every order


class Injection(BaseModel):
    """One fault, once. `pick` (0 to 1) decides whatever the fault still leaves open."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    fault: str
    after_s: float = Field(ge=0, description="into its round")
    hold_s: float = Field(ge=0, description="until it is healed")
    pick: float = Field(ge=0, le=1)


class Schedule(BaseModel):
    """See the module."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    version: Literal[1] = 1
    tier: Tier
    seed: int
    rate: int
    kinds: int
    workloads: list[str]
    rounds: list[list[Injection]]

    @property
    def injections(self) -> int:
        """All of them."""
        return sum(map(len, self.rounds))

    def write(self, file: Path) -> None:
        """Where it can be played again from."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.model_dump_json(indent=1) + "\n")


class Injectable(Protocol):
    """What a schedule needs to know of a fault."""

    @property
    def name(self) -> str: ...
    @property
    def touches(self) -> Collection[str]: ...
    @property
    def hold_s(self) -> tuple[float, float]: ...


def draw(
    tier: Tier,
    seed: int,
    faults: Mapping[str, Injectable],
    workloads: Collection[str],
    rounds: int | None = None,
    at_once: int | None = None,
) -> Schedule:
    """The schedule of this seed.

    Each fault comes once before any comes twice; two that touch the same are never at once.
    """
    plan, chance = PLANS[tier], random.Random(seed)
    waiting: list[str] = []
    made = []
    for _ in range(plan.rounds if rounds is None else rounds):
        waiting = waiting or chance.sample(sorted(faults), len(faults))
        chosen = _taken_together(waiting, faults, at_once or plan.at_once)
        made.append([_injection(faults[name], plan, chance) for name in chosen])
    return Schedule(
        tier=tier,
        seed=seed,
        rate=plan.rate,
        kinds=plan.kinds,
        workloads=sorted(workloads),
        rounds=made,
    )


def _taken_together(waiting: list[str], faults: Mapping[str, Injectable], count: int) -> list[str]:
    """The next, and the first of those that wait which fit beside it; at the end of them there may
    be fewer than asked for.
    """
    chosen: list[str] = []
    touched: set[str] = set()
    for name in [*waiting]:
        if len(chosen) < count and touched.isdisjoint(faults[name].touches):
            waiting.remove(name)
            chosen.append(name)
            touched.update(faults[name].touches)
    return chosen


def _injection(fault: Injectable, plan: Plan, chance: random.Random) -> Injection:
    least, most = fault.hold_s
    hold_s = chance.uniform(least, least + (most - least) * plan.hold_more)
    return Injection(
        fault=fault.name,
        after_s=round(chance.uniform(*AFTER_S), 1),
        hold_s=round(hold_s, 1),
        pick=round(chance.random(), 3),
    )
