"""`hourmark mirror watch`: observes the mirror and raises alarms before and after events are lost."""

from __future__ import annotations

import contextlib
import datetime as dt
import sys
import threading
from collections.abc import Iterator

import click

from hourmark.clock import SystemClock
from hourmark.config.loading import Config, config_option
from hourmark.kafka.topic_names import events_topic
from hourmark.log import set_up_logging
from hourmark.printing import json_option, print_json
from hourmark.process.metrics_server import serve_metrics
from hourmark.process.stopping import stop_on_signals
from hourmark_mirror.settings.mirror_sites import MirrorSites
from hourmark_mirror.watch.alarms import AlarmLimits, WatchResult
from hourmark_mirror.watch.metrics import MirrorMetrics
from hourmark_mirror.watch.observer import MirrorObserver
from hourmark_mirror.watch.watch_state_store import WatchStateStore
from hourmark_mirror.watch.watcher import MirrorWatcher, StuckWatchMonitor


@click.command()
@config_option
@click.option(
    "--once",
    is_flag=True,
    help="Observe the mirror once, print the active alarms and exit, with code 1 if there are any.",
)
@click.option(
    "--accept",
    is_flag=True,
    help=(
        "With --once: accept the losses that were reported before, so that their alarms end unless "
        "the cause persists. New losses are still reported."
    ),
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Port for metrics, instead of mirror.metrics_port; 0 disables metrics.",
)
@json_option
def watch(
    config: Config, once: bool, accept: bool, metrics_port: int | None, as_json: bool
) -> None:
    """Watch the mirror every ten seconds until SIGTERM and log each alarm that begins or ends.

    The command raises an alarm in the following cases:

    \b
    - retention will soon delete uncopied records, or has already deleted some
    - a topic was deleted or recreated
    - a position of the mirror is past the end of the edge's log
    - a topic on the central cluster was truncated
    - a task does not run, or copies nothing although there are uncopied records
    - a record is too large for the central cluster
    - fewer workers are running than mirror.workers states
    - no event of a type arrives for the time in mirror.traffic_seconds

    Alarms about lost records persist until --accept is used, even across restarts. The command
    changes nothing on the clusters. It serves metrics on the port mirror.metrics_port. The meaning
    of each alarm, and the steps to resolve it, are described in docs/operate/runbooks.

    \b
    Examples:
      hourmark mirror watch
      hourmark mirror watch --once --json
      hourmark mirror watch --once --accept
    """
    if not once and (accept or as_json):
        raise click.UsageError("--accept and --json require --once")
    set_up_logging(config.log_level)
    clock, metrics = SystemClock(), MirrorMetrics()
    expected = {
        events_topic(name): seconds for name, seconds in config.mirror.traffic_seconds.items()
    }
    workers, max_bytes = config.mirror.workers, config.kafka.max_message_bytes
    observer = MirrorObserver(
        MirrorSites(config),
        clock,
        max_message_bytes=max_bytes,
        expected=list(expected),
        counts_workers=workers > 0,
    )
    limits = AlarmLimits(config.mirror.retention_alarm_hours, expected, workers)
    watching = MirrorWatcher(
        observer, WatchStateStore(config.mirror.work_dir), limits, metrics, clock
    )
    with contextlib.closing(observer):
        if once:
            sys.exit(_once(watching, config.kafka.edge_alias, accept=accept, as_json=as_json))
        stopping = threading.Event()
        stop_on_signals(lambda _: stopping.set())
        port = config.mirror.metrics_port if metrics_port is None else metrics_port
        stop = serve_metrics(metrics.registry, "mirror", config.mirror.metrics_host, port)
        StuckWatchMonitor(watching).start(stopping)
        try:
            watching.run(stopping)
        finally:
            stop()


def _once(watching: MirrorWatcher, site: str, *, accept: bool, as_json: bool) -> int:
    result = watching.observe(accept=accept)
    if as_json:
        print_json(watch_result_to_json(site, result))
    else:
        click.echo("\n".join(format_watch_result(site, result)))
    return 1 if result.alarms else 0


def watch_result_to_json(site: str, result: WatchResult) -> dict[str, object]:
    """Convert the result of one observation of the mirror to a JSON-serializable dict.

    Args:
        site: Alias of the edge cluster.
        result: Active alarms, and the verification of each topic.

    Returns:
        A dict with the keys `ok` (True if there are no alarms), `alarms`, `site`, `verified` and
        `unverified`. The last two are dicts with topic names as keys.
    """
    return {
        "ok": not result.alarms,
        "alarms": [alarm.as_object() for alarm in result.alarms],
        "site": site,
        "verified": {topic: v._asdict() for topic, v in result.verified.items()},
        "unverified": dict(result.unverified),
    }


def format_watch_result(site: str, result: WatchResult) -> Iterator[str]:
    """Format the result of one observation of the mirror as lines of text.

    Args:
        site: Alias of the edge cluster.
        result: Active alarms, and the verification of each topic.

    Yields:
        One line for each verified topic, each unverified topic and each alarm, then a summary line.
    """
    for topic, v in result.verified.items():
        at = dt.datetime.fromtimestamp(v.through_ms / 1000, dt.UTC)
        yield (
            f"{site} {topic:<40} verified through {at:%Y-%m-%dT%H:%M:%SZ}, by {v.compared} of "
            f"{v.passed} records"
        )
    for topic, why in result.unverified.items():
        yield f"{site} {topic:<40} not verified: {why}"
    yield from (f"ALARM {alarm}" for alarm in result.alarms)
    verified = (
        f"{len(result.verified)} topics of site {site}"
        if result.verified
        else f"no topic of site {site}"
    )
    yield (
        f"{verified} verified by samples{'' if result.verified else ' yet'}, "
        f"{len(result.alarms)} alarms"
    )
