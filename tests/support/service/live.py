"""A real `hourmark serve` process on a real stack, and a stock client's view of what it
delivered.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import httpx
import psutil
from confluent_kafka import Consumer, TopicPartition
from tests.support.http_client import HTTP
from tests.support.waiting import wait_for

from hourmark.config.loading import Config
from hourmark.records.hours import Hour
from hourmark.records.ranges import ByteRange
from hourmark.records.wire import range_headers
from hourmark.rules.event_types import (
    DEAD_LETTERS,
    SYSLOG,
    Declarations,
    EventType,
    LineRule,
    Source,
)
from hourmark_declare.apply import apply_declarations
from hourmark_declare.servers import open_targets, read_applied_rules
from hourmark_infra.stack import LocalStack

RUN = uuid.uuid4().hex[:8]  # types of this run: the stack may be an older one's
CLICK = EventType(
    name=f"click-{RUN}",
    fields=[{"name": "n", "type": "long"}, {"name": "pad", "type": "string", "default": ""}],
)
RAW = EventType(
    name=f"raw-{RUN}",
    fields=[{"name": "line", "type": "bytes"}],
    line=LineRule(payload="text", field="line", time="observed"),
)
APP = Source(name=f"app-{RUN}", types=[CLICK.name, RAW.name])
FOLDER = Path(__file__).parents[3]
_START_S = 120  # a machine may unpack a Debian for other tests meanwhile


def apply_types(config: Config, ledger: Path, *more: Source) -> str:
    """Apply this run's types, and perhaps `more` sources of built-in ones, beside those in force;
    the revision's id.
    """
    latest = read_applied_rules(config)
    types = (
        {t.declaration.name: t.declaration for t in latest.types.values()}
        if latest is not None
        else {}
    )
    sources = dict(latest.sources) if latest is not None else {}
    types |= {t.name: t for t in (CLICK, DEAD_LETTERS, RAW, *([SYSLOG] if more else []))}
    sources |= {source.name: source for source in (APP, *more)}
    etl = config.etl.model_copy(update={"ledger": f"sqlite:///{ledger}"})
    storage = config.storage.model_copy(
        update={"root": f"file://{ledger.parent}/root"}
    )  # the stack's is another ledger's
    mine = config.model_copy(update={"etl": etl, "storage": storage})
    first = Hour.containing(time.time_ns() // 1_000_000, mine.parsing.bucket_seconds)
    with open_targets(mine, lambda _: None) as outside:
        return apply_declarations(
            outside, Declarations(list(types.values()), list(sources.values())), first
        ).revision


@dataclasses.dataclass(kw_only=True)
class Serving:
    """A service process; `restart` makes another one over the same state folder and port."""

    config_file: Path
    folder: Path
    revision: str
    settings: dict[str, str] = dataclasses.field(default_factory=dict)
    port: int = 0
    url: str = ""
    process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it, and wait until it would take a range under this run's rules."""
        environment = {
            **os.environ,
            "HOURMARK_SERVICE__STATE_DIR": str(self.folder / "state"),
            **self.settings,
        }
        log_file = self.folder / "service.log"
        with log_file.open("a") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "hourmark",
                    "serve",
                    "--config",
                    str(self.config_file),
                    "--port",
                    str(self.port),
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
            )
        assert self.process.stdout is not None
        printed = select.select([self.process.stdout], [], [], _START_S)[0]
        assert printed, (
            f"no address after {_START_S} s; its log ends: {log_file.read_text()[-2000:]}"
        )
        self.url = self.process.stdout.readline().strip()
        self.port = int(self.url.rpartition(":")[2])
        wait_for(self.is_ready, "the service is ready", 90)

    def get(self, path: str) -> httpx.Response:
        """What it answers."""
        return HTTP.get(self.url + path, timeout=10)

    def is_ready(self) -> bool:
        """Whether it would take a range under this run's rules."""
        try:
            answer = self.get("/readyz")
        except httpx.HTTPError:
            return False
        return answer.status_code == 200 and answer.headers["Hourmark-Rules"] == self.revision

    def workers(self) -> list[int]:
        """The process ids of those that serve for a supervisor; its own is not among them."""
        assert self.process is not None
        found = []
        for child in psutil.Process(self.process.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):  # or one that has ended a moment ago
                found += (
                    [child.pid] if any("spawn_main" in part for part in child.cmdline()) else []
                )
        return found

    def runs(self) -> bool:
        """Whether the process that was started is alive."""
        return self.process is not None and self.process.poll() is None

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait; the exit code."""
        assert self.process is not None
        assert self.process.stdout is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(60)
        self.process.stdout.close()
        return code

    def range_of(
        self,
        body: bytes,
        *,
        start: int = 0,
        file: str = "f" * 32,
        observed_at_ms: int | None = None,
    ) -> ByteRange:
        """A range of this run's source."""
        return ByteRange(
            host_id="ab" * 16,
            file_id=file,
            generation=0,
            start=start,
            end=start + len(body),
            observed_at_ms=time.time_ns() // 1_000_000
            if observed_at_ms is None
            else observed_at_ms,
            rules=self.revision,
            zone="UTC",
            source=APP.name,
            path="/var/log/app.log",
            host_name="web-1",
        )

    def post(self, byte_range: ByteRange, body: bytes, timeout_s: float = 60) -> httpx.Response:
        """Post it once."""
        return HTTP.post(
            self.url + "/v1/ranges",
            content=body,
            headers=range_headers(byte_range),
            timeout=timeout_s,
        )


@contextlib.contextmanager
def serving(
    stack: LocalStack,
    config: Config,
    folder: Path,
    *more: Source,
    settings: dict[str, str] | None = None,
) -> Iterator[Serving]:
    """A service on the stack, under this run's types and `more` sources."""
    revision = apply_types(config, folder / "ledger.sqlite", *more)
    started = Serving(
        config_file=stack.layout.config_file,
        folder=folder,
        revision=revision,
        settings=settings or {},
    )
    try:
        started.start()
        yield started
    finally:
        started.end()


def lines(numbers: range, pad: int = 40) -> bytes:
    """Click lines of now."""
    now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    text = "x" * pad
    return b"".join(
        f'<13>1 {now}Z - a p {CLICK.name} - {{"n":{n},"pad":"{text}"}}\n'.encode() for n in numbers
    )


@dataclasses.dataclass(frozen=True)
class Seen:
    """A record as a stock consumer gives it."""

    key: bytes
    value: bytes
    timestamp_ms: int


class StockReader:
    """confluent_kafka's Consumer, fastavro, and the registry's HTTP: nothing of Hourmark."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._schemas: dict[int, Any] = {}

    def records(self, topic: str) -> Iterator[Seen]:
        """All records of a topic up to its present end."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._config.kafka.edge.bootstrap,
                "group.id": "stock",
                "enable.auto.commit": False,
            }
        )
        try:
            partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
            for partition in partitions:
                low, high = consumer.get_watermark_offsets(
                    TopicPartition(topic, partition), timeout=20
                )
                consumer.assign([TopicPartition(topic, partition, low)])
                yield from self._to(consumer, high if high > low else 0)
        finally:
            consumer.close()

    def events(self, topic: str) -> list[dict[str, Any]]:
        """The records decoded, each with its `key`."""
        return [{"key": seen.key, **self.decode(seen.value)} for seen in self.records(topic)]

    def decode(self, value: bytes) -> dict[str, Any]:
        """By the schema that the registry has under the value's id."""
        assert value[0] == 0
        schema_id = int.from_bytes(value[1:5], "big")
        if schema_id not in self._schemas:
            answer = HTTP.get(f"{self._config.registry.url}/schemas/ids/{schema_id}")
            self._schemas[schema_id] = fastavro.parse_schema(
                json.loads(answer.json()["schema"]), named_schemas={}
            )
        row: Any = fastavro.schemaless_reader(io.BytesIO(value[5:]), self._schemas[schema_id], None)
        return dict(row)

    @staticmethod
    def _to(consumer: Consumer, end: int) -> Iterator[Seen]:
        while end > 0:
            message = consumer.poll(20)
            assert message is not None, "the topic can be read to its end"
            assert message.error() is None, message.error()
            key, value, offset = message.key(), message.value(), message.offset()
            assert isinstance(key, bytes)
            assert value is not None
            assert offset is not None
            yield Seen(key, value, message.timestamp()[1])
            if offset >= end - 1:
                return
