"""Buckets made by the real parts in this process: staged, listed, written, published, remembered.

No Kafka, Spark or proof.
"""

from __future__ import annotations

import io
import json
import random
import uuid
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import fastavro
from tests.support.records import TOPIC, kafka_table, seal, stage_plan
from tests.support.records import frontier as open_frontier

from hourmark.avro.framing import event_schema, framing_header
from hourmark.config.groups import AvroCodec, EtlSettings
from hourmark.config.groups import StorageSettings as Settings
from hourmark.config.loading import Config
from hourmark.records.hours import Hour
from hourmark.records.manifest import Manifest
from hourmark_etl.buckets.reader import Event, read_events
from hourmark_etl.closing.bucket_manifest import build_manifest
from hourmark_etl.closing.engine import Engine
from hourmark_etl.closing.publication.choice import open_publication
from hourmark_etl.closing.write.containers import WrittenHour
from hourmark_etl.closing.write.id_indexes import publish_indexes
from hourmark_etl.closing.write.writing import SealedHour
from hourmark_etl.ledger.bucket_rows import insert_closed_buckets
from hourmark_etl.ledger.database import Database
from hourmark_etl.model import Frontier, HourState, StagedGroup
from hourmark_etl.staging.stage import stage_table
from hourmark_etl.storage import FolderStorage, LocalDisk, Storage
from hourmark_etl.storage.folders import ATTEMPTS_FOLDER

FIRST = Hour(1_800_000_000)
SCHEMAS = {
    1: event_schema("click", [{"name": "n", "type": "long"}]),
    2: event_schema(
        "click",
        [{"name": "n", "type": "long"}, {"name": "word", "type": "string", "default": "none"}],
    ),
}
PARSED = {number: fastavro.parse_schema(schema) for number, schema in SCHEMAS.items()}
RANGE = b"rangerng"


def hour_at(number: int) -> Hour:
    return Hour(FIRST.start_s + number * 3600)


def an_id(hour: Hour, number: int) -> bytes:
    """The id of one event of the hour; the same for the same number."""
    drawn = random.Random(f"{hour} {number}")
    return (
        (hour.start_s * 1000 + drawn.randrange(3_600_000)).to_bytes(6, "big")
        + b"\x80"
        + drawn.randbytes(9)
    )


def some_ids(count: int, hour: Hour = FIRST) -> list[bytes]:
    """Of the hour's first events."""
    return [an_id(hour, number) for number in range(count)]


def datum(event_id: bytes, schema_id: int = 1, size: int = 0) -> bytes:
    file = io.BytesIO()
    value = {
        "event_id": event_id,
        "event_time": 0,
        "host": "h" * size,
        "source": "s",
        "file": None,
        "position": 1,
        "n": 5,
        "word": "other",
    }
    fastavro.schemaless_writer(file, PARSED[schema_id], value)
    return file.getvalue()


class World:
    """One root and one ledger; hours of type `click` are closed as asked for, in turn."""

    def __init__(self, folder: Path, storage: Storage | None = None, **etl: Any) -> None:
        self.root = folder / "root"  # where no other storage is given
        self.storage: Storage = storage or LocalDisk(self.root)
        url = f"file://{self.root}"
        self.config = Config(
            storage=Settings(root=url),
            etl=EtlSettings(ledger=f"sqlite:///{folder}/ledger.sqlite", **etl),
        )
        self.database = Database(self.config.etl.ledger)
        self.lease = self.database.acquire("closer")

    @property
    def folders(self) -> FolderStorage:
        """Its storage, which the test knows to have folders."""
        return cast(FolderStorage, self.storage)

    def stage(
        self,
        ids: Sequence[bytes],
        schema_id: int = 1,
        size: int = 0,
        datums: Mapping[bytes, bytes] | None = None,
    ) -> tuple[StagedGroup, ...]:
        """One staged file of these events; `datums`: by id, where they are others than the
        schema's.
        """
        made = datums or {event_id: datum(event_id, schema_id, size) for event_id in ids}
        rows = (
            (i + RANGE, framing_header(schema_id) + made[i], TOPIC, 0, n) for n, i in enumerate(ids)
        )
        return stage_table(kafka_table(rows), (), stage_plan(), self.storage).groups if ids else ()

    def write(
        self,
        hour: Hour,
        listed: Collection[StagedGroup],
        attempt: str = "one",
        codec: AvroCodec = "deflate",
    ) -> WrittenHour:
        """What the engine writes for the hour."""
        texts = {number: json.dumps(schema) for number, schema in SCHEMAS.items()}
        sealed = SealedHour("click", hour, tuple(listed))
        folder = f"{ATTEMPTS_FOLDER}/{attempt}/_tasks"
        engine = Engine(self.storage, self.database, self.config)
        (written,) = engine.write([sealed], texts, folder, codec)
        return written

    def close(
        self,
        hour: Hour,
        listed: Collection[StagedGroup],
        *,
        indexed: bool = True,
        codec: AvroCodec = "deflate",
    ) -> Manifest:
        """Write, publish, keep the index, remember."""
        attempt = uuid.uuid4().hex
        written = self.write(hour, listed, attempt, codec)
        f = frontier(hour)
        made = build_manifest(
            f,
            written,
            listed=listed,
            fingerprints=dict.fromkeys(SCHEMAS, "mark"),
            ledger=self.database.identity(),
            previous=None,
            attempt=attempt,
            now_ms=hour.end_ms,
        )
        manifest = publish(self.storage, f, written, made)
        if indexed:
            publish_indexes(
                self.storage, self.database, self.lease, attempt, [manifest], [written], hour.end_ms
            )
        with self.database.transaction(self.lease) as connection:
            insert_closed_buckets(connection, [(hour, manifest)])
        self.storage.delete(f"{ATTEMPTS_FOLDER}/{attempt}")
        return manifest

    def events(self, hour: Hour, manifest: Manifest) -> list[Event]:
        """What any Avro reader finds in the bucket."""
        return list(read_events(self.storage, "click", hour, manifest))


def publish(storage: Storage, f: Frontier, written: WrittenHour, manifest: Manifest) -> Manifest:
    """As an attempt does with an hour of its own."""
    publication = open_publication(storage)
    prepared = publication.prepare(f, written, manifest)
    return next(publication.publish([prepared], is_folder_complete=False))


def frontier(hour: Hour) -> Frontier:
    """Sealed as proved."""
    return open_frontier(hour=hour, state=HourState.SEALED, seal=seal())
