"""The results of all chaos runs: a file of JSON lines that runs append to, and the generated part of
docs/internals/evidence-chaos.md.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict
from tests.faults.chaos.checkers import DRAINED_S

BEGIN: Final = "<!-- made by `./hourmark chaos report`: change nothing here by hand -->"
END: Final = "<!-- end of what `./hourmark chaos report` made -->"


class Trial(BaseModel):
    """The result of one run.

    Attributes:
        load: Average number of processes of the whole machine that ran or were ready to run.
        faults: Each injected fault with the seconds until all buckets were closed again after its
            round; None if the run did not wait any longer. The faults of a round are consecutive.
        violations: Number of violations by kind.
        blamed: Number of violations that one fault alone caused, by its name.
        shared: Violations that one of several faults caused that were active at the same time,
            each as its kind and the names of these faults.
        planted: Number of errors that were added to the evidence to test the checkers.
        overlooked: Names of these errors that no checker found.
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
    shared: list[tuple[str, list[str]]] = []
    planted: int
    overlooked: list[str]

    @property
    def unassigned(self) -> int:
        """The number of violations that any fault of the run may have caused, or none."""
        return sum(self.violations.values()) - sum(self.blamed.values()) - len(self.shared)


def append(file: Path, trial: Trial) -> None:
    """Append a result to a file of results, and create the file if it does not exist."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as opened:
        opened.write(trial.model_dump_json() + "\n")


def read(file: Path) -> list[Trial]:
    """Return all results of a file, the oldest first."""
    return [Trial.model_validate(json.loads(line)) for line in file.read_text().splitlines()]


def table(trials: Iterable[Trial], held: Mapping[str, str]) -> str:
    """Return the generated part of the page.

    A violation counts for a fault only if this fault alone was active. Violations during several
    faults are listed once, with the names of these faults; all others are listed with their run.

    Args:
        trials: Results, the oldest first.
        held: What must continue during each fault, by the fault's name.
    """
    runs = [*trials]
    times = defaultdict[str, list[float | None]](list)
    for trial in runs:
        for fault, recovered_s in trial.faults:
            times[fault].append(recovered_s)
    own = sum((Counter(trial.blamed) for trial in runs), Counter[str]())
    rows = [
        _row(fault, times[fault], own[fault], held.get(fault, "(no longer a fault)"))
        for fault in sorted(times)
    ]
    parts = [
        *("## Summary", "", *_summary(runs), ""),
        *("## Results by fault", "", *_HEADER, *rows, ""),
        *("## Violations during several faults", "", *_shared(runs), ""),
        *("## Runs", "", *_runs(runs), ""),
    ]
    return "\n".join([BEGIN, "", *parts, END])


def put(page: str, made: str) -> str:
    """Return the page with its generated part replaced."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    assert after, f"the page has no place for the table: {BEGIN} … {END}"
    return f"{before}{made}{after}"


_HEADER: Final = (
    (
        "| fault | continues meanwhile | injected | violations by this fault alone "
        "| its rounds closed after (median, maximum) | command to repeat it |"
    ),
    "|---|---|---|---|---|---|",
)


def _row(fault: str, times: list[float | None], own: int, goes_on: str) -> str:
    known = [time for time in times if time is not None]
    shown = f"{statistics.median(known):.0f} s, {max(known):.0f} s" if known else "-"
    return (
        f"| {fault} | {goes_on} | {len(times)} | {own} | {shown} | `./hourmark "
        f"chaos run --fault {fault} --rounds 1` |"
    )


def _summary(runs: list[Trial]) -> list[str]:
    injected = sum(len(trial.faults) for trial in runs)
    own = sum(sum(trial.blamed.values()) for trial in runs)
    shared = sum(len(trial.shared) for trial in runs)
    other = sum(trial.unassigned for trial in runs)
    lines = [
        f"- {injected:,} injections in {len(runs)} runs with "
        f"{len({(t.tier, t.seed) for t in runs})} seeds, "
        f"{sum(trial.seconds for trial in runs) / 3600:.1f} hours",
        f"- {sum(trial.compared for trial in runs):,} lines and events compared",
        f"- {sum(trial.planted for trial in runs):,} errors planted to test the checkers, "
        f"{sum(len(trial.overlooked) for trial in runs)} overlooked",
    ]
    if injected and not own + shared + other:
        lines.append(
            "- no violation: by the rule of three, with 95 % confidence, at most "
            f"{3 / injected:.1%} of such injections lead to one on this machine"
        )
    elif injected:
        lines.append(
            f"- {own + shared + other} violations: {own} while one fault was active, "
            f"{shared} while several were, and {other} that no fault is known to have caused"
        )
    return lines


def _shared(runs: list[Trial]) -> list[str]:
    rows = [
        f"| {trial.date} | {trial.tier} {trial.seed} | {kind} | {', '.join(faults)} |"
        for trial in runs
        for kind, faults in trial.shared
    ]
    if not rows:
        return ["None."]
    return [
        "Each row shows one violation that occurred while several faults were active. Any of these "
        "faults, or their combination, may be the cause. The violation `not drained` means that a "
        f"round was not closed within {DRAINED_S:.0f} s.",
        "",
        "| date | run | violation | active faults |",
        "|---|---|---|---|",
        *rows,
    ]


def _runs(runs: list[Trial]) -> list[str]:
    def found(trial: Trial) -> str:
        return ", ".join(f"{count} {kind}" for kind, count in trial.violations.items()) or "none"

    def compared(trial: Trial) -> str:
        """The others were destroyed by a fault, or were unread in a log that vanished."""
        return f"{trial.compared:,}" + (
            f" of {trial.written:,}" if trial.compared < trial.written else ""
        )

    rows = [
        f"| {t.date} | {t.commit} | {t.tier} | {t.seed} | {len(t.faults)} | {compared(t)} "
        f"| {t.seconds / 60:.0f} min | {t.load:.0f} | {found(t)} |"
        for t in runs
    ]
    return [
        "| date | commit | tier | seed | injections | compared | duration | load | violations |",
        "|---|---|---|---|---|---|---|---|---|",
        *rows,
    ]
