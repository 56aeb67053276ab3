"""An edge and a central broker of a test's own, and several workers of one mirror between them,
each with its own Java.

One worker may be on another host (`net_namespace`), whose cable can be pulled.
"""

from __future__ import annotations

import collections
import contextlib
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import psutil
from confluent_kafka import Producer
from tests.support.mirrored import topic
from tests.support.net_namespace import OtherHost
from tests.support.own_kafka import answers, new_cluster_id, own_server
from tests.support.waiting import wait_for

from hourmark.config.groups import KafkaCluster
from hourmark.config.loading import Config, load_config
from hourmark.config.toml_text import render_toml
from hourmark.kafka.clients import Cluster, Partition, client_settings
from hourmark.kafka.committed_reader import CommittedReader
from hourmark_infra.stack.kafka import MESSAGE_BYTES_MAX
from hourmark_infra.stack.layout import free_ports
from hourmark_infra.stack.servers import Programs

_JOINED: Final = re.compile(r"Joined group at generation (\d+) .*leaderUrl='http://([^/]+)/'")
_PARTITIONS: Final = 2
STARTED_S: Final = 90.0


@contextlib.contextmanager
def own_broker(programs: Programs, folder: Path, host: str = "127.0.0.1") -> Iterator[KafkaCluster]:
    """A cluster of one broker, which runs and is gone afterwards."""
    port, controller = free_ports(("broker", "controller")).values()
    listener = f"PLAINTEXT://{host}:{port}"
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"{listener},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": listener,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(folder / "data"),
        "auto.create.topics.enable": "false",
        "message.max.bytes": str(MESSAGE_BYTES_MAX),
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "3",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "3",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "log.cleaner.dedupe.buffer.size": str(16 << 20),
    }
    with own_server(programs, folder, properties, new_cluster_id()):
        cluster = KafkaCluster(
            bootstrap=f"{host}:{port}", replication_factor=1, min_insync_replicas=1
        )
        wait_for(lambda: answers(cluster), f"the broker of {folder} answers")
        yield cluster


class Worker:
    """`hourmark mirror run` with settings, work folder, port and log of its own.

    `run`: what its command begins with.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, dict[str, Any]],
        rest: tuple[str, int],
        run: Sequence[str] = (),
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.rest, self.log = f"{rest[0]}:{rest[1]}", folder / "mirror.log"
        self.file, self._run = folder / "hourmark.toml", tuple(run)
        own: dict[str, Any] = {
            "work_dir": str(folder / "work"),
            "rest_host": rest[0],
            "rest_port": rest[1],
        }
        self._settings: dict[str, dict[str, Any]] = {
            **settings,
            "mirror": {**settings["mirror"], **own},
        }
        self.change()
        self._process: subprocess.Popen[bytes] | None = None
        self._began = 0  # where in its log its newest start is

    @property
    def config(self) -> Config:
        """Its settings."""
        return load_config(self.file)

    def change(self, **mirror: object) -> None:
        """Other settings of the group `mirror`, from its next start on."""
        self._settings["mirror"] |= mirror
        self.file.write_text(render_toml(self._settings))

    def start(self) -> None:
        """Start it; its log is appended to."""
        command = [
            *self._run,
            sys.executable,
            "-m",
            "hourmark",
            "mirror",
            "run",
            "--config",
            str(self.file),
        ]
        with self.log.open("a") as log:
            self._began = log.tell()
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def signal(self, number: signal.Signals, *, java_alone: bool = False) -> None:
        """To all of it, Java first; or to Java alone, which its supervisor sees."""
        assert self._process is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = psutil.Process(self._process.pid)
            for process in (*parent.children(recursive=True), *(() if java_alone else (parent,))):
                process.send_signal(number)

    def stop(self) -> None:
        """It is gone."""
        if self._process is not None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGKILL)
            self._process.wait(30)
            self._process = None

    def joined(self) -> tuple[int, str]:
        """The newest generation of the group that it is in since it was started, and the REST
        address of who leads it.
        """
        found = _JOINED.findall(self.log.read_bytes()[self._began :].decode(errors="replace"))
        return (int(found[-1][0]), found[-1][1]) if found else (0, "")

    def starts(self) -> int:
        """How often it has started Java."""
        return self.said("MirrorMaker 2 started, pid")

    def said(self, text: str) -> int:
        """How often its log says so."""
        return self.log.read_text(errors="replace").count(text)


class Pair:
    """The two clusters and the mirror's workers."""

    def __init__(
        self, edge: KafkaCluster, central: KafkaCluster, alias: str, workers: dict[str, Worker]
    ) -> None:
        self.edge, self.central, self.alias, self.workers = edge, central, alias, workers

    def start(self) -> None:
        """All workers run, in one group."""
        for worker in self.workers.values():
            worker.start()
        wait_for(self.is_one_group, "all workers are in one group", STARTED_S)

    def is_one_group(self, after: int = 0) -> bool:
        """Whether all are in the same generation, a later one than this."""
        joined = [worker.joined() for worker in self.workers.values()]
        return joined[0][0] > after and len(set(joined)) == 1

    def generation(self) -> int:
        """The newest."""
        return max(worker.joined() for worker in self.workers.values())[0]

    def leader(self) -> tuple[Worker, list[Worker]]:
        """Who leads, and the others."""
        address = max(worker.joined() for worker in self.workers.values())[1]
        workers = self.workers.values()
        return next(w for w in workers if w.rest == address), [
            w for w in workers if w.rest != address
        ]


@contextlib.contextmanager
def mirror_pair(
    programs: Programs, folder: Path, *, other: OtherHost | None = None
) -> Iterator[Pair]:
    """Two brokers, and two workers that are not started yet, the second of them on the other
    host.
    """
    here = other.address if other is not None else "127.0.0.1"
    with (
        own_broker(programs, folder / "central", here) as central,
        site(programs, folder, central, other) as pair,
    ):
        yield pair


@contextlib.contextmanager
def site(
    programs: Programs,
    folder: Path,
    central: KafkaCluster,
    other: OtherHost | None = None,
    alias: str = "edge",
) -> Iterator[Pair]:
    """The same, of a central cluster that is there, and that several sites may have."""
    here = other.address if other is not None else "127.0.0.1"
    with contextlib.ExitStack() as end:
        edge = end.enter_context(own_broker(programs, folder / "edge", here))
        kafka: dict[str, Any] = {
            "edge_alias": alias,
            "edge": edge.model_dump(),
            "central": central.model_dump(),
        }
        mirror: dict[str, Any] = {
            "java": str(programs.java),
            "classpath": programs.kafka_classpath,
            "heap_mb": 256,
        }
        settings = {"kafka": kafka, "mirror": mirror}
        ports = free_ports(("first", "second"))
        there = (here, ()) if other is None else (other.its_address, other.run)
        workers = {
            "first": Worker(folder / "first", settings, (here, ports["first"])),
            "second": Worker(folder / "second", settings, (there[0], ports["second"]), there[1]),
        }
        for worker in workers.values():
            end.callback(worker.stop)
        yield Pair(edge, central, alias, workers)


class Traffic:
    """A program that writes to topics of the edge until it is stopped, and remembers what was
    acknowledged.
    """

    def __init__(
        self,
        edge: KafkaCluster,
        names: Sequence[str],
        *,
        told: str = "record",
        pause_s: float = 0.005,
    ) -> None:
        self._edge, self._names, self._told, self._pause_s = edge, names, told.encode(), pause_s
        self._acknowledged: collections.Counter[tuple[str, bytes]] = collections.Counter()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="traffic")

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> collections.Counter[tuple[str, bytes]]:
        """All that was acknowledged: topic and value, each once."""
        self._stop.set()
        self._thread.join(60)
        return self._acknowledged

    def _work(self) -> None:
        producer, number = Producer(client_settings(self._edge, enable_idempotence=True)), 0
        while not self._stop.wait(self._pause_s):
            for name in self._names:
                what = topic(name), b"%s %d" % (self._told, number)
                producer.produce(*what, key=b"%d" % number, on_delivery=self._taken(what))
            producer.poll(0)
            number += 1
        assert producer.flush(30) == 0

    def _taken(self, what: tuple[str, bytes]) -> Callable[[object, object], None]:
        def told(error: object, _: object) -> None:
            assert error is None, error
            self._acknowledged[what] += 1

        return told


def held(
    cluster: KafkaCluster, topics: Mapping[str, str]
) -> collections.Counter[tuple[str, bytes]]:
    """What readers of committed records see now: by the name that `topics` gives to each topic, and
    value.
    """
    asked, found = Cluster(cluster, "own"), collections.Counter[tuple[str, bytes]]()
    partitions = [Partition(name, p) for name in topics for p in range(_PARTITIONS)]
    starts, ends = asked.starts(partitions), asked.ends(partitions)
    with contextlib.closing(CommittedReader(cluster, "own")) as reader:
        for runs in reader.read({p: (starts[p], ends[p]) for p in partitions}):
            for run in runs:
                found.update(
                    (topics[run.partition.topic], record.value() or b"") for record in run.records
                )
    return found
