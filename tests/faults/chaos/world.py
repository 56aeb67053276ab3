"""The world that faults happen to, all of it real: servers, components, links between them.

Three edge brokers, a central one, two workers of MirrorMaker 2 under their supervisors, NameNode,
DataNode, registry; two hosts, each with a tailer and a delivery service; the driver with its ledger
in PostgreSQL (SQLite where that is not installed). Tailers, the API's program, the driver's way to
NameNode and ledger, everybody's to the registry and to Kafka go over links that can be bad
networks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.faults.chaos.link import Link, Network
from tests.faults.chaos.linked_stack import DRIVER, SERVICES, LinkedStack
from tests.faults.chaos.losses import Losses, partitions_of, read_rows
from tests.faults.chaos.settings import (
    HOSTS,
    Ports,
    all_types,
    center_settings,
    declare,
    host_settings,
    second_driver_settings,
    with_bootstrap,
)
from tests.faults.chaos.victims import Component, Database, Server, Victim
from tests.support import postgres
from tests.support.crash import ORDER_VARIABLE
from tests.support.documents import ROOT
from tests.support.http_client import HTTP
from tests.support.shifted_clock import OFFSET_VARIABLE

from hourmark.clock import Clock
from hourmark.config.loading import Config, load_config
from hourmark.config.toml_text import render_toml
from hourmark.errors import Unavailable
from hourmark.kafka.clients import Cluster
from hourmark.kafka.topic_names import central_topic, events_topic
from hourmark.records.wire import CLOCK_HEADER
from hourmark.rules.event_types import DEAD_LETTERS
from hourmark_infra.components import COMMANDS, Components, wait_for
from hourmark_infra.jars.cache import Reporter
from hourmark_infra.stack.control import purge_stack
from hourmark_infra.stack.layout import CLUSTERS, MIRRORS, free_ports
from hourmark_verify.demo.configuration import ZONE
from hourmark_verify.judge.webhdfs import WebHdfsReader

CENTER: Final = "center"
OUTSIDE: Final = "outside"  # of who looks, by no link to Kafka
SECOND: Final = "second"  # another driver, where a fault wants two
WORKER: Final = "mirror-b"  # the mirror's other worker, as faults name it
CRASH_ORDER: Final = "crash-order.json"
CRASHING_DRIVER: Final = "tests.support.crashing_driver"
SHIFTED_CLOCK: Final = "tests.support.shifted_clock"
_READY_S: Final = 120.0
_APPLY_S: Final = 180.0
_DRAIN_S: Final = 600.0


class Faulty(Components):
    """Its service's and its driver's clocks are off, and its driver dies at a step, where a fault
    orders it; else as any.
    """

    def command(self, *arguments: str) -> Sequence[str]:
        """Of Hourmark; those two by way of what takes orders."""
        offset = f"{OFFSET_VARIABLE}={_clock_offset(self.config)}"
        by_order = ("/usr/bin/env", offset, f"PYTHONPATH={ROOT}")
        if arguments == COMMANDS["etl"]:
            order = f"{ORDER_VARIABLE}={self.config.parent / CRASH_ORDER}"
            return (*by_order, order, sys.executable, "-m", CRASHING_DRIVER, str(self.config))
        if arguments == COMMANDS["service"]:
            return (
                *by_order,
                sys.executable,
                "-m",
                SHIFTED_CLOCK,
                *arguments,
                "--config",
                str(self.config),
            )
        return super().command(*arguments)


def _clock_offset(config: Path) -> Path:
    return config.with_suffix(".clock")


@dataclasses.dataclass
class World:
    """Made by `standing`. `victims`: all that a fault may hit, by name. `ended`: who ended though
    no fault had hit it.
    """

    work: Path
    stack: LinkedStack
    database: Database | None  # None where PostgreSQL is not installed: the ledger is SQLite's then
    links: dict[str, Link]
    hosts: dict[str, Components]
    center: Components
    second_driver: Components
    ports: dict[str, Ports]
    kinds: int
    clock: Clock
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        self.crash_order = (
            self.work / CRASH_ORDER
        )  # what stands here kills the driver at a step of its own
        self.hit = set[str]()  # victims that a fault holds now
        self.ended: list[str] = []
        self.losses = Losses()  # what faults destroyed
        self._looking = threading.Lock()
        self.victims: dict[str, Victim] = {
            name: Server(self.stack, name) for name in self.stack.names
        }
        for host, components in self.hosts.items():
            self.victims |= {
                f"{name}-{host}": Component(components, name) for name in ("tailer", "service")
            }
        self.victims["etl"] = Component(self.center, "etl")
        self.victims[WORKER] = self.victims.pop(MIRRORS[1])
        if self.database is not None:
            self.victims["ledger"] = self.database
        self.config: Config = load_config(self.work / f"{OUTSIDE}.toml")

    @property
    def logs(self) -> Path:
        """What tailers read: a folder for each host."""
        return self.work / "logs"

    @property
    def types(self) -> list[str]:
        """All that close buckets."""
        return [*all_types(self.kinds), DEAD_LETTERS.name]

    def host_config(self, host: str) -> Config:
        """As its tailer and service have it."""
        return load_config(self.hosts[host].config)

    def clock_offset(self, whose: str) -> Path:
        """Where a fault puts by how much a clock is off: the center's driver's, or the service's of
        a host.
        """
        return _clock_offset(self.center.config if whose == CENTER else self.hosts[whose].config)

    def service_clock_ms(self, host: str) -> int:
        """What its service says that it is."""
        answer = HTTP.get(f"http://127.0.0.1:{self.ports[host].service}/healthz", timeout=_READY_S)
        return int(answer.headers[CLOCK_HEADER])

    @property
    def central(self) -> Cluster:
        """The central cluster, by no link."""
        assert self.config.kafka.central is not None
        return Cluster(self.config.kafka.central, "central")

    def hdfs(self) -> WebHdfsReader:
        """A reader of buckets, to be closed; no storage of Hourmark's."""
        return WebHdfsReader(
            f"http://{self.stack.layout.address('namenode-http')}", self.config.storage.user
        )

    def copied_ids(self, event_type: str) -> set[str]:
        """Of all events of a type that the central cluster has."""
        central = self.central
        partitions = partitions_of(
            central, central_topic(events_topic(event_type), self.config.kafka.edge_alias)
        )
        starts, ends = central.starts(partitions), central.ends(partitions)
        return {
            row["event_id"]
            for row in read_rows(central, event_type, {p: (starts[p], ends[p]) for p in partitions})
        }

    def wait(self, condition: Callable[[], bool], what: str, seconds: float) -> None:
        """Wait for a condition, and look after the components meanwhile; Unavailable if it never
        holds.
        """
        wait_for(condition, what, seconds, self.clock, self.look)

    def look(self) -> None:
        """Who ended though nobody hit it is written down, and started again, as a supervisor of a
        machine would.
        """
        with self._looking:  # faults end side by side, and each looks
            for name, victim in self.victims.items():
                if (
                    name not in self.hit and not victim.is_alive() and name not in self.hit
                ):  # asked again: it may have been hit since
                    self.ended.append(f"{name}: {victim.last_words()}")
                    self.say(f"{name} HAS ENDED BY ITSELF; it is started again")
                    victim.start()

    def start(self) -> None:
        """Types are applied, all components run, and services take ranges."""
        self.center.run_repeatable("types", "apply", seconds=_APPLY_S)
        self.center.start("etl")  # first, as Spark takes longest
        for components in self.hosts.values():
            components.start("service")
        for host in HOSTS:
            self.hosts[host].wait_ready(f"http://127.0.0.1:{self.ports[host].service}", _READY_S)
            self.hosts[host].start("tailer")

    def drain(self) -> None:
        """Tailers deliver what is left, and say goodbye."""
        for host, components in self.hosts.items():
            self.hit.add(f"tailer-{host}")
            components.stop("tailer")
            components.run("tail", "--drain", seconds=_DRAIN_S)

    def stop(self) -> None:
        """End all components."""
        for components in (*self.hosts.values(), self.center, self.second_driver):
            components.stop_all()


@contextlib.contextmanager
def standing(
    home: Path, kinds: int, clock: Clock, say: Reporter, *, spread: bool
) -> Iterator[World]:
    """A world of its own below `home`, from nothing; taken down at the end, whatever happened. Its
    logs stay.
    """
    os.environ["TZ"] = ZONE
    work = home / "work"
    for components in (
        Components(home / part, work / part, work, clock) for part in (*HOSTS, CENTER, SECOND)
    ):
        components.stop_all()  # of a run that was killed
    purge_stack(home, say)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    with ExitStack() as at_the_end:
        network = Network()
        at_the_end.callback(network.stop)
        stack = LinkedStack.load_or_create(home, clusters=2, spread=spread, workers=2, report=say)
        at_the_end.callback(stack.down)
        links = stack.link(network)
        try:
            stack.up()
        # as a rule, somebody took a port between its choice and its use: `up` chooses it anew
        except Unavailable as error:
            say(f"{str(error).splitlines()[0]}; trying once more")
            stack.down()
            stack.up()
        names = ["ledger", "link-registry", "link-namenode", "link-ledger"]
        names += [
            f"{of}-{host}"
            for host in HOSTS
            for of in ("service", "metrics", "api", *(f"to-{there}" for there in HOSTS))
        ]
        port = free_ports(tuple(names))
        ledger = (
            at_the_end.enter_context(postgres.running(port["ledger"]))
            if postgres.binaries()
            else None
        )
        links |= _links(stack, ledger, port, network)
        world = _made(home, work, stack, ledger, port, links, kinds, clock, say)
        at_the_end.callback(world.stop)
        world.start()
        yield world


def _links(
    stack: LinkedStack, ledger: postgres.Postgres | None, port: dict[str, int], network: Network
) -> dict[str, Link]:
    """To all that is no broker."""
    targets = {
        "registry": stack.layout.ports["registry"],
        "namenode": stack.layout.ports["namenode-http"],
    }
    if ledger is not None:
        targets["ledger"] = port["ledger"]
    links = {
        name: Link(port[f"link-{name}"], ("127.0.0.1", target), network)
        for name, target in targets.items()
    }
    for there in HOSTS:
        target = ("127.0.0.1", port[f"service-{there}"])
        links[f"api-{there}"] = Link(port[f"api-{there}"], target, network)
        links |= {
            f"tailer-{host}-{there}": Link(port[f"to-{there}-{host}"], target, network)
            for host in HOSTS
        }
    return links


def _made(
    home: Path,
    work: Path,
    stack: LinkedStack,
    ledger: postgres.Postgres | None,
    port: dict[str, int],
    links: dict[str, Link],
    kinds: int,
    clock: Clock,
    say: Reporter,
) -> World:
    url = ledger.new_database() if ledger is not None else ""
    by_link = (
        url.replace(f":{port['ledger']}/", f":{port['link-ledger']}/")
        or f"sqlite:///{work / 'ledger.sqlite'}"
    )
    declare(work / "types", kinds)
    of_stack = tomllib.loads(stack.layout.config_file.read_text())
    outside = center_settings(
        of_stack, work / "types", by_link, {name: link.port for name, link in links.items()}
    )
    outside = with_bootstrap(
        outside, {cluster: stack.layout.bootstrap(cluster) for cluster in CLUSTERS}
    )
    center = with_bootstrap(
        outside, {cluster: stack.bootstrap(DRIVER, cluster) for cluster in CLUSTERS}
    )
    at_hosts = with_bootstrap(outside, {"edge": stack.bootstrap(SERVICES, "edge")})
    ports = {
        host: Ports(
            port[f"service-{host}"],
            port[f"metrics-{host}"],
            {there: port[f"to-{there}-{host}"] for there in HOSTS},
        )
        for host in HOSTS
    }
    (work / f"{OUTSIDE}.toml").write_text(render_toml(outside))
    (work / f"{CENTER}.toml").write_text(render_toml(center))
    (work / f"{SECOND}.toml").write_text(render_toml(second_driver_settings(center, work / SECOND)))
    for host in HOSTS:
        logs = work / "logs" / host
        own = host_settings(at_hosts, host, ports[host], work / host, logs, ("app-events", "kinds"))
        (work / f"{host}.toml").write_text(render_toml(own))

    def at(name: str, kind: type[Components] = Faulty) -> Components:
        return kind(home / name, work / f"{name}.toml", work / "said" / name, clock)

    hosts = {host: at(host) for host in HOSTS}
    database = None if ledger is None else Database(ledger, url.rpartition("/")[2])
    return World(
        work,
        stack,
        database,
        links,
        hosts,
        at(CENTER),
        at(SECOND, Components),
        ports,
        kinds,
        clock,
        say,
    )
