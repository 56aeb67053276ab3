"""`hourmark canary check`: shows which pipeline steps each site's canary events have passed.

The answer comes from the site's Kafka clusters and the ledger.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Final

import click

from hourmark.clock import Clock, SystemClock
from hourmark.commands.canary import CANARY, CanaryStep, late_alarms
from hourmark.config.loading import Config, config_option
from hourmark.errors import Unavailable, UsageError
from hourmark.kafka.clients import Cluster, Partition
from hourmark.kafka.committed_reader import CommittedReader
from hourmark.kafka.topic_names import central_topic, events_topic
from hourmark.log import set_up_logging
from hourmark.printing import json_option, print_json
from hourmark.process.alarms import Alarm, AlarmLog
from hourmark.process.stopping import stop_on_signals
from hourmark_etl.ledger.batches import read_partition_positions
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.frontiers import frontiers
from hourmark_etl.ledger.maintenance.existing import open_existing_ledger

_LOG: Final = logging.getLogger(__name__)

_NEAR: Final = (
    50  # the last record before a position is within this many offsets; the rest are markers
)
_TOPIC: Final = events_topic(CANARY)
LastPassedMs = dict[CanaryStep, int | None]


class CanaryMonitor:
    """Monitor for the progress of each site's canary events through the pipeline.

    A canary is a test event that each site (edge cluster) sends once a minute. The monitor reads
    the Kafka clusters and the ledger, which is the state database of the ETL.

    Args:
        config: Configuration of the sites and their clusters.
        database: Ledger.

    Attributes:
        first_bucket_ms: Unix milliseconds at the start of the first bucket of the canary's event
            type; 0 before the first call of `last_passed_ms`.
    """

    def __init__(self, config: Config, database: Database) -> None:
        self._edges = {
            kafka.edge_alias: Cluster(kafka.edge, "edge") for kafka in config.kafka.sites
        }
        self._central, self._is_mirrored = (
            Cluster(config.kafka.central_cluster, "central"),
            config.kafka.mirrored,
        )
        self._database, self._length_s = database, config.parsing.bucket_seconds
        self.first_bucket_ms = 0  # set by `passed`

    @property
    def sites(self) -> list[str]:
        """Return the aliases of all configured sites.

        An alias identifies the edge cluster of a site, and is a valid argument of `last_passed_ms`.
        """
        return [*self._edges]

    def last_passed_ms(self, site: str) -> dict[CanaryStep, int | None]:
        """Return the time of the newest canary event that has passed each pipeline step.

        Args:
            site: Alias of the site (edge cluster), from `sites`.

        Returns:
            Time at which this event was written, in Unix milliseconds by step, in pipeline order.
            None means that no canary event has passed the step. For `CLOSED`, the time is the end
            of the last closed bucket. Without a mirror, `MIRRORED` is absent.

        Raises:
            UsageError: The event type of the canary is not declared.
            KeyError: No site has this alias.
            Unavailable: A cluster or the ledger does not respond.
        """
        frontier = next(
            (f for f in frontiers(self._database, self._length_s) if f.event_type == CANARY), None
        )
        if frontier is None:
            raise UsageError(
                f"the event type {CANARY} does not exist, so there is no canary. To add it: "
                f"`hourmark canary declaration > types/{CANARY}.toml`, then `hourmark types "
                "apply --dir types`"
            )
        self.first_bucket_ms = frontier.first_hour.start_s * 1000
        copy = central_topic(_TOPIC, site if self._is_mirrored else None)
        at_edge = _newest_ms(self._edges[site], _TOPIC)
        copied = {CanaryStep.MIRRORED: _newest_ms(self._central, copy)} if self._is_mirrored else {}
        closed_ms = (
            frontier.hour.start_s * 1000
            if frontier.hour.start_s > frontier.first_hour.start_s
            else None
        )
        return {
            CanaryStep.ACKNOWLEDGED: at_edge,
            **copied,
            CanaryStep.STAGED: self._staged_ms(copy),
            CanaryStep.CLOSED: closed_ms,
        }

    def _staged_ms(self, copy: str) -> int | None:
        spans = {}
        for p in _partitions(self._central, copy):
            known = read_partition_positions(self._database, p)
            if known:
                spans[p] = (
                    max(self._central.starts([p])[p], known[-1].next_offset - _NEAR),
                    known[-1].next_offset,
                )
        with contextlib.closing(CommittedReader(self._central.settings, "central")) as reader:
            times = [
                r.timestamp()[1] for runs in reader.read(spans) for run in runs for r in run.records
            ]
        return max(times, default=None)


def _partitions(cluster: Cluster, topic: str) -> list[Partition]:
    info = cluster.topics([topic]).get(topic)
    return [] if info is None else [Partition(topic, p) for p in info.partitions]


def _newest_ms(cluster: Cluster, topic: str) -> int | None:
    return max(cluster.newest_ms(_partitions(cluster, topic)).values(), default=None)


@click.command()
@config_option
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(min=1),
    help="Check repeatedly, with this interval in seconds, until SIGTERM.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    default=0,
    help="With --every: port for Prometheus metrics; with 0, metrics are not served.",
)
@click.option(
    "--metrics-host",
    default="127.0.0.1",
    show_default=True,
    help="Address for --metrics-port; there is no authentication.",
)
@json_option
def check(
    config: Config, every_s: float | None, metrics_port: int, metrics_host: str, as_json: bool
) -> None:
    """Show when the last canary event passed each pipeline step.

    A step is late if no canary event has passed it for two minutes. For the last step, the closing
    of a bucket, the length of a bucket is added to this limit. The first late step of a site raises
    an alarm. The exit code is 1 if a site has an alarm. With --every, the command does not exit,
    but logs the start and the end of each alarm.

    \b
    Examples:
      hourmark canary check
      hourmark canary check --every 30 --metrics-port 8786
    """
    clock = SystemClock()
    with contextlib.closing(open_existing_ledger(config)) as database:
        canaries = CanaryMonitor(config, database)
        if every_s is None:
            passed = {site: canaries.last_passed_ms(site) for site in canaries.sites}
            alarms = _alarms(config, passed, clock, canaries.first_bucket_ms)
            _say(passed, alarms, clock.now_ms(), as_json=as_json)
            sys.exit(1 if alarms else 0)
        set_up_logging(config.log_level)
        _watch(config, canaries, clock, every_s, (metrics_host, metrics_port))


def _alarms(
    config: Config, passed: Mapping[str, LastPassedMs], clock: Clock, since_ms: int
) -> list[Alarm]:
    length_s, now_ms = config.parsing.bucket_seconds, clock.now_ms()
    return [
        alarm
        for site, of in passed.items()
        for alarm in late_alarms(of, now_ms, length_s, site, since_ms)
    ]


def _say(
    passed: Mapping[str, LastPassedMs], alarms: Sequence[Alarm], now_ms: int, *, as_json: bool
) -> None:
    if as_json:
        ages = {
            site: {
                step: None if at_ms is None else (now_ms - at_ms) / 1000
                for step, at_ms in of.items()
            }
            for site, of in passed.items()
        }
        print_json(
            {
                "ok": not alarms,
                "age_seconds": ages,
                "alarms": [alarm.as_object() for alarm in alarms],
            }
        )
        return
    for site, of in passed.items():
        if len(passed) > 1:
            click.echo(f"site {site}")
        for step, at_ms in of.items():
            at = (
                "never"
                if at_ms is None
                else f"{dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
            )
            click.echo(
                f"{step:<13} {at}"
                + ("" if at_ms is None else f", {(now_ms - at_ms) / 1000:.0f} s ago")
            )
    for alarm in alarms:
        click.echo(f"ALARM {alarm}")


def _watch(
    config: Config,
    canaries: CanaryMonitor,
    clock: Clock,
    every_s: float,
    metrics_address: tuple[str, int],
) -> None:
    from prometheus_client import (
        CollectorRegistry,
        Gauge,
    )  # imported here: a single check needs no metrics and must run without Spark's extras

    from hourmark.process.metrics_server import serve_metrics

    passed: dict[str, LastPassedMs] = {}
    began_ms = clock.now_ms()  # the type may have been declared long before
    stopping, log, registry = threading.Event(), AlarmLog(), CollectorRegistry()
    passed_at = Gauge(
        "hourmark_canary_passed_timestamp_seconds",
        "Unix time at which the last canary that has passed the step was written; for `closed`, "
        "the end of its bucket; 0 if there is none yet.",
        ["site", "step"],
        registry=registry,
    )
    alarmed = Gauge(
        "hourmark_canary_late",
        "1 while the alarm canary-late is active.",
        ["site"],
        registry=registry,
    )
    stop_on_signals(lambda _: stopping.set())
    stop = serve_metrics(registry, "canary", *metrics_address)
    try:
        while not stopping.is_set():
            for site in canaries.sites:
                try:
                    passed[site] = canaries.last_passed_ms(site)
                except Unavailable as error:  # the last known times are kept and become older
                    _LOG.warning("the canary of site %s cannot be checked now: %s", site, error)
            alarms = _alarms(config, passed, clock, max(canaries.first_bucket_ms, began_ms))
            for site, of in passed.items():
                for step, at_ms in of.items():
                    passed_at.labels(site=site, step=step).set((at_ms or 0) / 1000)
                alarmed.labels(site=site).set(any(alarm.subject == site for alarm in alarms))
            log.update(alarms)
            stopping.wait(every_s)
    finally:
        stop()
