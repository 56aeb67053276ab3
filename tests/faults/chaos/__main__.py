"""The command behind `hourmark chaos`."""

from __future__ import annotations

import datetime as dt
import secrets
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, get_args

import click
from tests.faults.chaos.faults import FAULTS, of_tier
from tests.faults.chaos.run import Outcome, Run
from tests.faults.chaos.schedule import Schedule, Tier, draw
from tests.faults.chaos.trials import Trial, append, put, read, table
from tests.faults.chaos.workloads import WORKLOADS

from hourmark.clock import SystemClock
from hourmark.config.loading import stack_state_dir
from hourmark.errors import HourmarkError, UsageError
from hourmark_infra.jars.cache import print_progress
from hourmark_infra.locks import exclusive_lock

ROOT: Final = Path(__file__).resolve().parents[3]
PUBLISHED: Final = (
    ROOT / "docs" / "internals" / "chaos-trials.jsonl"
)  # what `report` makes its table of
NIGHTLY_MINUTES: Final = 150.0
PAGE: Final = ROOT / "docs" / "internals" / "evidence-chaos.md"
_FILE: Final = click.Path(path_type=Path, dir_okay=False)


@click.group(name="hourmark chaos")
def chaos() -> None:
    """Faults by the hundred, on a world of its own, and what they came to."""


@chaos.command()
@click.option(
    "--tier",
    type=click.Choice(get_args(Tier)),
    default="pr",
    show_default=True,
    help="How many rounds, of how long.",
)
@click.option(
    "--seed", type=int, help="Decides the schedule and the traffic. Default: one that is said."
)
@click.option(
    "--fault",
    "faults",
    multiple=True,
    type=click.Choice(sorted(FAULTS)),
    metavar="NAME",
    help="Only these; see `list`.",
)
@click.option(
    "--workload",
    "workloads",
    multiple=True,
    type=click.Choice(sorted(WORKLOADS)),
    help="Only these.",
)
@click.option("--rounds", type=click.IntRange(1, 1000), help="Instead of the tier's.")
@click.option(
    "--at-once",
    type=click.IntRange(1, 12),
    help="Faults of a round at most, instead of the tier's.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=1),
    help="No round begins after so long. Default: 150 in the nightly tier.",
)
@click.option(
    "--replay",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Just this schedule.",
)
@click.option(
    "--results",
    type=_FILE,
    help="File to append the result to, as a line of JSON. Default: $HOURMARK_HOME/chaos/"
    "trials.jsonl; docs/internals/chaos-trials.jsonl to publish it.",
)
def run(
    tier: Tier,
    seed: int | None,
    faults: tuple[str, ...],
    workloads: tuple[str, ...],
    rounds: int | None,
    at_once: int | None,
    minutes: float | None,
    replay: Path | None,
    results: Path | None,
) -> None:
    """Draw a schedule of faults, play it, and judge what it came to; exit 1 on a violation.

    \b
    Examples:
      hourmark chaos run
      hourmark chaos run --tier nightly --seed 7
      hourmark chaos run --fault edge-leader-sigkill --workload api --rounds 1
      hourmark chaos run --replay schedule.json
      hourmark chaos run --tier nightly --results docs/internals/chaos-trials.jsonl
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # as Ctrl-C
    if replay is not None:
        schedule = Schedule.model_validate_json(replay.read_text())
    else:
        seed = secrets.randbelow(1_000_000) if seed is None else seed
        chosen = {name: FAULTS[name] for name in faults} or of_tier(tier)
        schedule = draw(tier, seed, chosen, workloads or tuple(WORKLOADS), rounds, at_once)
    minutes = minutes or (
        NIGHTLY_MINUTES if schedule.tier == "nightly" and replay is None else None
    )
    folder = stack_state_dir() / "chaos"
    passed = played(folder, schedule, results or folder / "trials.jsonl", minutes)
    sys.exit(0 if passed else 1)


@chaos.command(name="list")
def list_faults() -> None:
    """All faults, and what goes on meanwhile.

    \b
    Examples:
      hourmark chaos list
    """
    for fault in FAULTS.values():
        click.echo(f"{fault.name:<40} {', '.join(sorted(fault.goes_on)) or '(nothing)'}")


@chaos.command()
@click.option(
    "--results",
    type=_FILE,
    default=PUBLISHED,
    help="Results of runs, as lines of JSON. Default: docs/internals/chaos-trials.jsonl.",
)
def report(results: Path) -> None:
    """Write docs/internals/evidence-chaos.md from the published results of all runs.

    \b
    Examples:
      hourmark chaos report
    """
    PAGE.write_text(put(PAGE.read_text(), made_table(results)))
    click.echo(f"{PAGE} contains the results of {len(read(results))} runs")


def made_table(results: Path) -> str:
    """Return the generated part of the page."""
    held = {
        fault.name: "all" if len(fault.goes_on) == 6 else ", ".join(sorted(fault.goes_on))
        for fault in FAULTS.values()
    }
    return table(read(results), held)


def played(folder: Path, schedule: Schedule, results: Path, minutes: float | None = None) -> bool:
    """Whether nothing was violated.

    The schedule is written before anything happens, and where something failed, kept.
    """

    def refuse() -> None:
        raise UsageError(
            f"another run works in {folder}; wait for it, or set HOURMARK_HOME to another folder"
        )

    with exclusive_lock(folder / "chaos.lock", refuse):
        commit = _commit()  # of what is about to run, whatever is worked on meanwhile
        file = folder / "schedule.json"
        schedule.write(file)
        print_progress(
            f"seed {schedule.seed}, {schedule.injections} injections; the schedule is {file}"
        )
        try:
            outcome = Run(folder, schedule, SystemClock(), print_progress, minutes).play()
        except BaseException:
            print_progress(f"NOT PLAYED TO ITS END; again: {_kept(folder, schedule)}")
            raise
        trial = _trial(schedule, outcome, commit)
        append(results, trial)
        _show(outcome)
        if trial.violations:
            print_progress(f"again: {_kept(folder, schedule)}")
        return not trial.violations


def _kept(folder: Path, schedule: Schedule) -> str:
    """The command that plays it again; nothing of a later run replaces what it plays."""
    kept = (
        folder
        / f"failed-{schedule.tier}-{schedule.seed}-{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%S}.json"
    )
    schedule.write(kept)
    return f"./hourmark chaos run --replay {kept}"


def _trial(schedule: Schedule, outcome: Outcome, commit: str) -> Trial:
    return Trial(
        date=f"{dt.datetime.now(dt.UTC):%Y-%m-%d}",
        commit=commit,
        tier=schedule.tier,
        seed=schedule.seed,
        workloads=schedule.workloads,
        seconds=outcome.seconds,
        load=outcome.load,
        written=outcome.written,
        compared=outcome.findings.compared,
        faults=outcome.recoveries,
        violations=outcome.violations,
        blamed=dict(outcome.findings.blamed),
        shared=outcome.findings.shared,
        planted=len(outcome.overlooked),
        overlooked=outcome.missed,
    )


def _commit() -> str:
    """Of the checkout, with a + where something of it but documents is not committed."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
        ).stdout.strip()

    return (git("rev-parse", "--short=9", "HEAD") or "unknown") + (
        "+" if git("status", "--porcelain", "--", ":!docs") else ""
    )


def _show(outcome: Outcome) -> None:
    for said in outcome.findings.said:
        click.echo(said)
    for fault, seconds in outcome.recoveries:
        click.echo(
            f"{fault:<40} "
            f"{'NOT closed again' if seconds is None else f'closed again after {seconds:.0f} s'}"
        )
    click.echo(
        f"planted for the checkers: {len(outcome.overlooked)}; overlooked: "
        f"{', '.join(outcome.missed) or 'none'}"
    )
    total = ", ".join(f"{count} {kind}" for kind, count in outcome.violations.items()) or "none"
    compared = f"{outcome.written:,} written, {outcome.findings.compared:,} compared"
    destroyed = (
        f", {outcome.findings.destroyed:,} destroyed in Kafka and nowhere"
        if outcome.findings.destroyed
        else ""
    )
    click.echo(f"{compared}{destroyed} in {outcome.seconds:.0f} s; violations: {total}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Errors of Hourmark are one message each."""
    try:
        chaos(arguments, prog_name="hourmark chaos")
    except HourmarkError as error:
        click.echo(f"hourmark: {error}", err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
