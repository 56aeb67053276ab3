"""Command group `hourmark mirror`: run MirrorMaker 2, show its lag, verify, watch and plan."""

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
from hourmark.printing import json_option, print_json
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
    """Replicate topics from the edge to the central cluster with MirrorMaker 2.

    The commands run MirrorMaker 2, show its lag, verify and monitor the copies, and manage topics
    and positions.
    """


for _command in (watch, status, plan, apply, reset_offsets):
    mirror.add_command(_command)


@mirror.command()
@config_option
@click.option(
    "--no-restart",
    is_flag=True,
    help="Exit with MirrorMaker 2's exit code instead of restarting it.",
)
def run(config: Config, no_restart: bool) -> None:
    """Run MirrorMaker 2 from the edge to the central cluster, with exactly-once delivery.

    The command runs until SIGTERM. It creates missing topics on the central cluster, and logs how
    existing ones differ from those on the edge cluster (see `hourmark mirror plan`). It restarts
    MirrorMaker 2 when MirrorMaker 2 exits or one of its tasks fails. The log of MirrorMaker 2 is
    written to stderr.

    Generated files are stored in mirror.work_dir. The command does not start if another instance
    uses this folder.

    To run several workers, start one on each host, with a mirror.rest_host that the other hosts can
    reach. The workers share the tasks of one mirror. If a worker stops, the remaining workers take
    over its tasks.

    \b
    Example:
      hourmark mirror run --config /etc/hourmark/hourmark.toml
    """
    set_up_logging(config.log_level)
    with _lock_work_dir(config.mirror.work_dir):
        sys.exit(_run(config, restart=not no_restart))


def _lock_work_dir(work_dir: Path) -> IO[bytes]:
    folder = StateFolder(work_dir, "mirror")
    if (holder := folder.holder()) is not None:
        raise UsageError(
            f"a mirror is already running with mirror.work_dir = {work_dir} (process {holder}; "
            "`hourmark up` starts one); `hourmark mirror lag` shows its progress. To run it here, "
            f"stop that process first: `kill {holder}`"
        )
    return folder.lock()


def _run(config: Config, *, restart: bool) -> int:
    sites = MirrorSites(config)
    prepare_command(config)  # an invalid setting must stop the start before any wait
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
    damaged = DamagedTopics(sites, clock)
    detectors = tasks, StallDetector(sites, clock), ResponseDetector(host, port, clock), damaged
    return MirrorSupervisor(
        start_process=lambda: MirrorMakerProcess(config, damaged.excluded),
        detectors=detectors,
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
            _LOG.warning("waiting for Kafka, retry in %g s: %s", pause_s, error)
            stopping.wait(pause_s)
            pause_s = min(2 * pause_s, longest_s)


@mirror.command()
@config_option
@json_option
def lag(config: Config, as_json: bool) -> None:
    """Show how many edge records the mirror has not copied yet, for each topic-partition.

    Each offset in the output is that of the next record to read. The end offset on the central
    cluster is larger than the number of copied records, because Kafka also writes a commit marker
    for each transaction.

    \b
    Example:
      hourmark mirror lag --json | jq .records
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
        print_json({"records": total, "stale": stale, "overtaken": overtaken, "partitions": rows})
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
            f"{stale} positions are past the edge's log end: nothing is copied there until "
            "`hourmark mirror reset-offsets`"
        )
    if overtaken:
        click.echo(
            f"{overtaken} records were deleted by retention before the mirror copied "
            "them; `hourmark mirror verify` lists the partitions"
        )


def _or_dash(offset: int | None) -> str:
    return "-" if offset is None else str(offset)


@mirror.command()
@config_option
@click.option(
    "--topic", "topics", multiple=True, help="Consider only this topic or event type (repeatable)."
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="Maximum seconds to wait for the mirror.",
)
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    help="Compare the contents of only this many randomly chosen topic-partitions.",
)
@click.option(
    "--seed",
    type=int,
    help="Seed for the random choice of --sample. Default: a random seed, which is printed.",
)
@click.option(
    "--accept",
    is_flag=True,
    help="Accept the current findings, so that their alarms end. New findings, and findings whose "
    "cause persists, are still reported.",
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
    """Verify that the central cluster contains every edge record, once and unaltered.

    The command waits until the mirror has reached the current end offsets of the edge cluster. Then
    it compares keys and values record by record and in order. It also raises an alarm if data may
    be lost: if a topic was deleted or recreated, if retention has passed the mirror's last known
    position, or if a topic exists only on the central cluster.

    Alarms persist until --accept is used, even after retention deletes the evidence. The command
    exits with code 1 if there is any finding. Each finding names the topic, partition and offsets.

    \b
    Examples:
      hourmark mirror verify
      hourmark mirror verify --topic click --timeout 300 --json
    """
    set_up_logging(config.log_level)
    if sample is not None and seed is None:
        seed = random.SystemRandom().randrange(1 << 32)
        click.echo(f"--seed {seed}", err=True)
    verification = Verification(config, SystemClock(), topics=topics, accept=accept)

    def report(verdict: VerificationResult) -> None:
        if as_json:
            print_json(result_to_json(verdict))
        else:
            click.echo("\n".join(format_result(verdict)))

    verdict = verification.run(timeout_s, sample=sample, seed=seed or 0, report=report)
    sys.exit(0 if verdict.ok else 1)
