"""`hourmark mirror`: run MirrorMaker 2, show its lag, verify it."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable
from typing import Final

import click

from hourmark.clock import SystemClock
from hourmark.config import Config, config_option
from hourmark.errors import Unavailable
from hourmark.kafka import Cluster
from mirror.process import MirrorMakerProcess, prepare
from mirror.properties import target_of
from mirror.remote_topics import ensure_remote_topics
from mirror.supervisor import Supervisor, TaskWatch

log = logging.getLogger("hourmark.mirror")

BACKOFF_S: Final = (1.0, 15.0)


@click.group()
def mirror() -> None:
    """MirrorMaker 2 between the edge and the central cluster: run it, show its lag, verify it."""


@mirror.command(epilog="Example:  hourmark mirror run --config /etc/hourmark/hourmark.toml")
@config_option
@click.option("--no-restart", is_flag=True, help="End with MirrorMaker 2's exit code instead of starting it again.")
def run(config: Config, no_restart: bool) -> None:
    """Run MirrorMaker 2, edge to central, exactly once, until SIGTERM.

    Makes the remote topics that are missing, and checks those that exist. Starts MirrorMaker 2 again when it ends or when one
    of its tasks fails. Its log goes to stderr; what it was given is in mirror.work_dir.
    """
    _log_to_stderr(config)
    central_settings = target_of(config)
    prepare(config)  # a wrong setting stops the start, before anything is waited for
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    clock = SystemClock()
    edge, central = Cluster(config.kafka.edge, "edge"), Cluster(central_settings, "central")

    def topics() -> None:
        if created := ensure_remote_topics(config, edge, central):
            log.info("created on the central cluster: %s", ", ".join(created))

    for step in (edge.cluster_id, central.cluster_id, topics):
        _until_available(step, stopping)
    watch = TaskWatch(central_settings, config.kafka.edge_alias)
    supervisor = Supervisor(lambda: MirrorMakerProcess(config), watch, clock, stopping, restart=not no_restart)
    sys.exit(supervisor.run())


def _until_available(step: Callable[[], object], stopping: threading.Event) -> None:
    pause_s = BACKOFF_S[0]
    while not stopping.is_set():
        try:
            step()
        except Unavailable as error:
            log.warning("waiting, next try in %g s: %s", pause_s, error)
            stopping.wait(pause_s)
            pause_s = min(2 * pause_s, BACKOFF_S[1])
        else:
            return


def _log_to_stderr(config: Config) -> None:
    logging.basicConfig(
        stream=sys.stderr, level=config.log_level.upper(), format="[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
    )
