"""One round: its faults begin and end at their moments, whatever becomes of any of them."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import httpx
from confluent_kafka import KafkaException
from tests.faults.chaos.faults import FAULTS, Heal, NotInjected
from tests.faults.chaos.schedule import Injection
from tests.faults.chaos.world import World

from hourmark.clock import Clock
from hourmark.errors import HourmarkError
from hourmark_infra.jars.cache import Reporter

_ENDS_S: Final = 3600.0  # more than any heal waits
_FAILURES: Final = (
    HourmarkError,
    AssertionError,
    OSError,
    httpx.HTTPError,
    KafkaException,
    subprocess.SubprocessError,
)


@dataclasses.dataclass
class Played:
    """One fault as it was, in monotonic seconds. `failed`: what it waited for in vain, as what it
    hit did not do as it must.
    """

    fault: str
    began_s: float
    healed_s: float
    heal: Heal | None = None
    failed: str | None = None
    hit: frozenset[str] = frozenset()  # whom it holds


def play(
    world: World, injections: Sequence[Injection], clock: Clock, say: Reporter
) -> list[Played]:
    """All of them that found something to hit.

    A fault that fails leaves whom it hit to whoever looks after the world.

    Each ends in a thread of its own: what was hit may be well again only after another fault has
    ended, too.
    """
    began_s = clock.monotonic_s()
    steps = [(of.after_s, False, of) for of in injections] + [
        (of.after_s + of.hold_s, True, of) for of in injections
    ]
    played: dict[str, Played] = {}
    ended: list[Future[None]] = []
    with ThreadPoolExecutor(len(injections)) as ending:
        for at_s, ends, of in sorted(steps, key=lambda step: step[0]):
            _until(world, clock, began_s + at_s)
            if ends and of.fault in played:
                ended.append(ending.submit(_end, world, played[of.fault], clock, say))
            elif not ends:
                say(f"  {of.fault} begins")
                try:
                    played[of.fault] = _begun(world, of, clock, say)
                except NotInjected as error:
                    say(f"  {of.fault} is left out: {error}")
        world.wait(lambda: all(each.done() for each in ended), "all faults to end", _ENDS_S)
        for each in ended:
            each.result()
    return [*played.values()]


def _begun(world: World, of: Injection, clock: Clock, say: Reporter) -> Played:
    before, at_s = frozenset(world.hit), clock.monotonic_s()
    try:
        heal = FAULTS[of.fault].inject(world, of.pick)
    except _FAILURES as error:
        failed = Played(of.fault, at_s, clock.monotonic_s(), hit=frozenset(world.hit) - before)
        _give_up(world, failed, error, say)
        return failed
    return Played(of.fault, at_s, at_s, heal, hit=frozenset(world.hit) - before)


def _end(world: World, of: Played, clock: Clock, say: Reporter) -> None:
    if of.heal is None:
        return
    try:
        of.heal()
        say(f"  {of.fault} has ended")
    except _FAILURES as error:
        _give_up(world, of, error, say)
    of.healed_s = clock.monotonic_s()


def _give_up(world: World, of: Played, error: BaseException, say: Reporter) -> None:
    of.failed = str(error) or repr(error)
    world.hit.difference_update(of.hit)
    say(f"  {of.fault} FAILED: {of.failed}")


def _until(world: World, clock: Clock, moment_s: float) -> None:
    """Components are looked after meanwhile; late moments are not made up for."""
    seconds = moment_s - clock.monotonic_s()
    if seconds > 0:
        world.wait(
            lambda: clock.monotonic_s() >= moment_s, "a moment of the schedule", seconds + 60
        )
