"""What all runs came to: a file of JSON lines that runs append to, and the table of
docs/internals/reliability.md that is made of it.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict
from tests.faults.chaos.checkers import DRAINED_S

BEGIN: Final = "<!-- made by `./hourmark chaos report`: change nothing here by hand -->"
END: Final = "<!-- end of what `./hourmark chaos report` made -->"


class Trial(BaseModel):
    """One run.

    `faults`: each injection with the seconds until all was closed again; None: given up. `blamed`:
    of all `violations`, those that are one fault's alone.

    `load`: processes of the whole machine that ran or wanted to, on average.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    date: str
    commit: str
    tier: str
    seed: int
    workloads: list[str]
    seconds: float
    load: float
    written: int
    compared: int
    faults: list[tuple[str, float | None]]
    violations: dict[str, int]
    blamed: dict[str, int] = {}
    planted: int
    overlooked: list[str]

    @property
    def unassigned(self) -> int:
        """Violations of the run that no fault is known to have caused."""
        return sum(self.violations.values()) - sum(self.blamed.values())


def append(file: Path, trial: Trial) -> None:
    """A line more."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as opened:
        opened.write(trial.model_dump_json() + "\n")


def read(file: Path) -> list[Trial]:
    """All of them, the oldest first."""
    return [Trial.model_validate(json.loads(line)) for line in file.read_text().splitlines()]


def table(trials: Iterable[Trial], held: Mapping[str, str]) -> str:
    """By fault, with the violations that are known to be its own; `held`: what must go on
    meanwhile.

    Violations that no fault is known to have caused are in the summary, and with their run.
    """
    runs = [*trials]
    times, broken = defaultdict[str, list[float | None]](list), defaultdict[str, int](int)
    for trial in runs:
        for fault, recovered_s in trial.faults:
            times[fault].append(recovered_s)
        for fault in {fault for fault, _ in trial.faults}:
            broken[fault] += trial.blamed.get(fault, 0)
    rows = [
        _row(fault, times[fault], broken[fault], held.get(fault, "(no longer a fault)"))
        for fault in sorted(times)
    ]
    return "\n".join([BEGIN, "", *_summary(runs), "", *_HEADER, *rows, "", *_runs(runs), "", END])


def put(page: str, made: str) -> str:
    """The page with the table in its place."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    assert after, f"the page has no place for the table: {BEGIN} … {END}"
    return f"{before}{made}{after}"


_HEADER: Final = (
    (
        "| fault | goes on meanwhile | injected | violations | closed again after, median "
        "and most | repeat it |"
    ),
    "|---|---|---|---|---|---|",
)


def _row(fault: str, times: list[float | None], broken: int, goes_on: str) -> str:
    known = [time for time in times if time is not None]
    late = sum(time is None or time > DRAINED_S for time in times)
    shown = f"{statistics.median(known):.0f} s, {max(known):.0f} s" if known else "-"
    never = f"; {late} not within {DRAINED_S:.0f} s" if late else ""
    return (
        f"| {fault} | {goes_on} | {len(times)} | {broken} | {shown}{never} | `./hourmark "
        f"chaos run --fault {fault} --rounds 1` |"
    )


def _summary(runs: list[Trial]) -> list[str]:
    injected = sum(len(trial.faults) for trial in runs)
    assigned, unassigned = (
        sum(sum(trial.blamed.values()) for trial in runs),
        sum(trial.unassigned for trial in runs),
    )
    unclean = [trial for trial in runs if trial.unassigned]
    lines = [
        f"{injected:,} injections in {len(runs)} runs of "
        f"{len({(t.tier, t.seed) for t in runs})} seeds, "
        f"{sum(trial.seconds for trial in runs) / 3600:.1f} hours, "
        f"{sum(trial.compared for trial in runs):,} lines and events "
        f"compared; {sum(trial.planted for trial in runs):,} faults planted for the checkers, "
        f"{sum(len(trial.overlooked) for trial in runs)} overlooked.",
    ]
    if injected and not assigned + unassigned:
        lines.append(
            "None of them led to a violation. By the rule of three that bounds the share that "
            "would, with 95 % confidence, "
            f"at {3 / injected:.1%}, for faults as this list draws them, on this machine."
        )
    elif injected:
        lines.append(
            f"{assigned + unassigned} violations: {assigned} of single faults, which the table "
            f"names, and {unassigned} of "
            f"{len(unclean)} runs with {sum(len(trial.faults) for trial in unclean)} "
            "injections, of which any may be the cause: "
            "the list of runs names these."
        )
    return lines


def _runs(runs: list[Trial]) -> list[str]:
    def found(trial: Trial) -> str:
        return ", ".join(f"{count} {kind}" for kind, count in trial.violations.items()) or "none"

    def compared(
        trial: Trial,
    ) -> str:  # the others were destroyed, or unread in a log that vanished
        return f"{trial.compared:,}" + (
            f" of {trial.written:,}" if trial.compared < trial.written else ""
        )

    rows = [
        f"| {t.date} | {t.commit} | {t.tier} | {t.seed} | {len(t.faults)} | {compared(t)} "
        f"| {t.seconds / 60:.0f} min | {t.load:.0f} | {found(t)} |"
        for t in runs
    ]
    return [
        "| date | commit | tier | seed | injections | compared | took | load | violations |",
        "|---|---|---|---|---|---|---|---|---|",
        *rows,
    ]
