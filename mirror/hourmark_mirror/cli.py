"""`hourmark mirror`: run MirrorMaker 2, show its lag, verify and watch it, keep its topics."""

from __future__ import annotations

import dataclasses
import logging
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final

import click

from hourmark.clock import SystemClock
from hourmark.config.loading import Config, config_option
from hourmark.errors import Unavailable, UsageError
from hourmark.log import set_up_logging
from hourmark.printing import json_option, say_json
from hourmark.process.stopping import stop_on_signals
from hourmark.state_folder import StateFolder
from hourmark_mirror.lag import measure_lag
from hourmark_mirror.plan_cli import apply, plan, status
from hourmark_mirror.reset import reset_offsets
from hourmark_mirror.run.damaged_topics import DamagedTopics
from hourmark_mirror.run.process import MirrorMakerProcess, prepare_command
from hourmark_mirror.run.stalls import ResponseDetector, StallDetector
from hourmark_mirror.run.supervisor import MirrorSupervisor, TaskFailureDetector
from hourmark_mirror.settings.mirror_sites import MirrorSites
from hourmark_mirror.topics.remote_topics import ensure_remote_topics
from hourmark_mirror.verify.result_formatting import format_result, result_to_json
from hourmark_mirror.verify.verification import Verification, VerificationResult
from hourmark_mirror.watch.cli import watch

_LOG = logging.getLogger(__name__)

BACKOFF_S: Final = (1.0, 15.0)


@click.group()
def mirror() -> None:
    """MirrorMaker 2 between the edge and the central cluster: run it, show its lag, verify and
    watch it, keep its topics.
    """


for _command in (watch, status, plan, apply, reset_offsets):
    mirror.add_command(_command)


@mirror.command(epilog="Example:  hourmark mirror run --config /etc/hourmark/hourmark.toml")
@config_option
@click.option(
    "--no-restart",
    is_flag=True,
    help="End with MirrorMaker 2's exit code instead of starting it again.",
)
def run(config: Config, no_restart: bool) -> None:
    """Run MirrorMaker 2, edge to central, exactly once, until SIGTERM.

    Makes the remote topics that are missing, and tells what differs of those that exist (`hourmark
    mirror plan`). Starts MirrorMaker 2 again when it ends or when one of its tasks fails. Its log
    goes to stderr; what it was given is in mirror.work_dir, where a second one is refused. On
    several hosts, each with a mirror.rest_host by which the others reach it, all are workers of one
    mirror: they share its tasks, and what one leaves the others take over.
    """
    set_up_logging(config.log_level)
    with _alone(config.mirror.work_dir):
        sys.exit(_run(config, restart=not no_restart))


def _alone(work_dir: Path) -> IO[bytes]:
    """Hold the folder until this is closed; UsageError where a mirror runs on it already."""
    folder = StateFolder(work_dir, "mirror")
    if (holder := folder.holder()) is not None:
        raise UsageError(
            f"a mirror runs on {work_dir} already (process {holder}; `hourmark up` starts one), "
            "and a second one would only be "
            "in its way: `hourmark mirror lag` shows how far it is. To run it here, end that "
            f"one first: `kill {holder}`"
        )
    return folder.lock()


def _run(config: Config, *, restart: bool) -> int:
    sites = MirrorSites(config)
    prepare_command(config)  # a wrong setting stops the start, before anything is waited for
    stopping = threading.Event()
    stop_on_signals(lambda _: stopping.set())
    clock = SystemClock()

    def topics() -> None:
        if created := ensure_remote_topics(config, sites):
            _LOG.info("created on the central cluster: %s", ", ".join(created))

    for step in (sites.edge.cluster_id, sites.central.cluster_id, topics):
        _until_available(step, stopping)
    host, port = config.mirror.rest_host, config.mirror.rest_port
    tasks = TaskFailureDetector(sites.central.settings, sites.alias, f"{host}:{port}", clock)
    left_out = DamagedTopics(sites, clock)
    watches = tasks, StallDetector(sites, clock), ResponseDetector(host, port, clock), left_out
    return MirrorSupervisor(
        start_process=lambda: MirrorMakerProcess(config, left_out.excluded),
        watches=watches,
        clock=clock,
        stopping=stopping,
        restart=restart,
    ).run()


def _until_available(step: Callable[[], object], stopping: threading.Event) -> None:
    pause_s, longest_s = BACKOFF_S
    while not stopping.is_set():
        try:
            step()
            return
        except Unavailable as error:
            _LOG.warning("waiting, next try in %g s: %s", pause_s, error)
            stopping.wait(pause_s)
            pause_s = min(2 * pause_s, longest_s)


@mirror.command(epilog="Example:  hourmark mirror lag --json | jq .records")
@config_option
@json_option
def lag(config: Config, as_json: bool) -> None:
    """Show, for each topic-partition, how many records of the edge the mirror has not copied yet.

    Offsets are the next to read. The central end counts one marker for each transaction besides the
    records.
    """
    lags = measure_lag(config)
    total = sum(max(entry.records, 0) for entry in lags)
    stale, overtaken = (
        sum(entry.records < 0 for entry in lags),
        sum(entry.overtaken for entry in lags),
    )
    if as_json:
        rows = [
            {**dataclasses.asdict(entry), "records": entry.records, "overtaken": entry.overtaken}
            for entry in lags
        ]
        say_json({"records": total, "stale": stale, "overtaken": overtaken, "partitions": rows})
        return
    click.echo(
        f"{'topic-partition':<50} {'edge end':>12} {'mirror':>12} {'lag':>12} {'central end':>12}"
    )
    for entry in lags:
        name = f"{entry.topic}-{entry.partition}"
        position, central_end = _or_dash(entry.position), _or_dash(entry.central_end)
        click.echo(
            f"{name:<50} {entry.edge_end:>12} {position:>12} {entry.records:>12} {central_end:>12}"
        )
    click.echo(f"{len(lags)} topic-partitions, {total} records not yet copied")
    if stale:
        click.echo(
            f"{stale} positions are past the edge's end: stale, so nothing is copied "
            "there until `hourmark mirror reset-offsets`"
        )
    if overtaken:
        click.echo(
            f"{overtaken} records were deleted by retention before the mirror copied "
            "them; `hourmark mirror verify` names where"
        )


def _or_dash(offset: int | None) -> str:
    return "-" if offset is None else str(offset)


@mirror.command(
    epilog=(
        "Examples:  hourmark mirror verify    hourmark mirror verify --topic click --timeout "
        "300 --json"
    ),
)
@config_option
@click.option(
    "--topic", "topics", multiple=True, help="Only this topic or event type; may be repeated."
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="Seconds to wait.",
)
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    help="Compare contents of so many topic-partitions only, chosen at random.",
)
@click.option("--seed", type=int, help="Of --sample's choice; default: a new one, printed.")
@click.option(
    "--accept",
    is_flag=True,
    help="Accept what was found: its alarms end, but what is wrong still, or new, is told.",
)
@json_option
def verify(
    config: Config,
    topics: tuple[str, ...],
    timeout_s: float,
    sample: int | None,
    seed: int | None,
    accept: bool,
    as_json: bool,
) -> None:
    """Check that the central cluster holds what the edge holds now: all of it, once, unaltered.

    Waits until the mirror has reached the edge's present ends, and compares record by record (key
    and value, in order). Alarms where a gap cannot be excluded: a topic deleted or recreated, or
    retention that passed the mirror's last known position; and what only the central cluster has.
    What was found stands until --accept, also where retention deletes the evidence. Exit code 1 on
    any finding, each with topic, partition and offsets.
    """
    set_up_logging(config.log_level)
    if sample is not None and seed is None:
        seed = random.SystemRandom().randrange(1 << 32)
        click.echo(f"--seed {seed}", err=True)
    verification = Verification(config, SystemClock(), topics=topics, accept=accept)

    def report(verdict: VerificationResult) -> None:
        if as_json:
            say_json(result_to_json(verdict))
        else:
            click.echo("\n".join(format_result(verdict)))

    verdict = verification.run(timeout_s, sample=sample, seed=seed or 0, report=report)
    sys.exit(0 if verdict.ok else 1)
