"""What the histories are about: types, lines, ranges, hosts, and what is true of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import fastavro
from tests.support.rules import put_rules

from hourmark.avro.framing import Schema, event_schema
from hourmark.config.groups import EtlSettings, KafkaCluster, KafkaSettings, StorageSettings
from hourmark.config.loading import Config
from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import AUDIT, HOSTS, events_topic
from hourmark.records.event_id import EventId
from hourmark.records.hours import Hour
from hourmark.records.ranges import RangeId
from hourmark.rules.event_types import EventType, Source

FIRST_HOUR = Hour(1_800_000_000, 3600)
# Hours of old files, in ascending order; those between them hold nothing.
OLD_HOURS = tuple(Hour(FIRST_HOUR.start_s - 3600 * ago) for ago in (200_000, 41, 40, 7, 1))
TYPES = ("click", "view")
HOSTS_OF = {"app": 2, "web": 1}  # source → hosts
SOURCES = [Source(name="app", types=["click", "view"]), Source(name="web", types=["view"])]
SCHEMAS: dict[int, Schema] = {
    n: event_schema(t, [{"name": "number", "type": "long"}]) for n, t in enumerate(TYPES, 1)
}
PARSED = {n: fastavro.parse_schema(dict(schema)) for n, schema in SCHEMAS.items()}
SCHEMA_IDS = {t: n for n, t in enumerate(TYPES, 1)}
CLUSTER = "central-cluster"
OUTSIDERS = "records of outsiders"  # likewise
KEY_CHANGED = "key changed in the central log"  # likewise
VALUE_CHANGED = "value changed in the central log"  # as the world counts it
EDGE_PARTITIONS = [
    Partition(HOSTS, 0),
    Partition(AUDIT, 0),
    *(Partition(events_topic(t), n) for t in TYPES for n in range(2)),
]


class Broken(AssertionError):
    """The promise does not hold in this history."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Event:
    """`line` is what was written on the host: the truth that ids must tell."""

    line: int
    event_type: str
    time_ms: int
    id: EventId
    value: bytes


@dataclasses.dataclass(kw_only=True)
class Range:
    """Lines of one host, durable there before the first send. `otherwise`: as other software reads
    them.
    """

    id: RangeId
    host: int
    events: tuple[Event, ...]
    otherwise: tuple[Event, ...] = ()
    recorded: set[tuple[Event, ...]] = dataclasses.field(
        default_factory=set
    )  # readings that have an audit record
    appended: set[EventId] = dataclasses.field(
        default_factory=set
    )  # of its rows; the same line may be in another range, too
    observed_at_ms: int = 0
    acked: bool = False
    abandoned: bool = False  # will never be sent again
    has_checksums: bool = True  # a service of before 0.4.0 promises it without


@dataclasses.dataclass(kw_only=True)
class Host:
    """A tailer."""

    number: int
    source: str
    caught_up_at_ms: int
    sequence: int = 0
    dead: bool = False
    gone: bool = False  # it said goodbye
    lives: int = 1  # incarnations


@dataclasses.dataclass(kw_only=True)
class Service:
    """A delivery service; `ahead_ms`: how far its clock runs ahead of the true one."""

    id: str
    ahead_ms: int = 0
    sequence: int = 0
    gone: bool = False
    lives: int = 1


def config_of(ledger: Path, *further: str) -> Config:
    """An edge, perhaps `further` ones, and a central cluster; a bucket is an hour."""
    kafka = KafkaSettings(
        central=KafkaCluster(), further_edges=dict.fromkeys(further, KafkaCluster())
    )
    storage = StorageSettings(root=f"file://{ledger.parent}/root")  # only for what opens it itself
    return Config(kafka=kafka, etl=EtlSettings(ledger=f"sqlite:///{ledger}"), storage=storage)


def make_template(folder: Path) -> Path:
    """A ledger with the types, made once: each history begins with a copy."""
    path = folder / "template.sqlite"
    types = [EventType(name=t, fields=[{"name": "number", "type": "long"}]) for t in TYPES]
    put_rules(config_of(path), types, SOURCES, FIRST_HOUR, SCHEMA_IDS)
    return path
