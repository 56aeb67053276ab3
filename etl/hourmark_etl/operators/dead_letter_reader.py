"""Reads dead letters one at a time, from the end of the edge topic or from closed buckets.

Memory use does not depend on their number.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Final

from hourmark.avro.datum import Datum
from hourmark.avro.framing import unframe
from hourmark.config.groups import KafkaCluster
from hourmark.errors import Unavailable
from hourmark.kafka.clients import Cluster, Partition
from hourmark.kafka.committed_reader import CommittedReader
from hourmark.kafka.topic_names import events_topic
from hourmark.records import dead_letters
from hourmark.rules.rules_topic import read_rules
from hourmark_etl.buckets.reader import Event, find_manifest, list_hours, read_events
from hourmark_etl.operators.dead_letter_selection import DeadLetterFilter
from hourmark_etl.storage import Storage

RECORDS_MAX: Final = 200_000
_STALL_S: Final = 10.0
_PROGRESS_S: Final = 5.0
PrintMessage = Callable[[str], None]


def read_dead_letters_from_topic(
    edge: KafkaCluster, records_max: int, print_message: PrintMessage
) -> Iterator[Event]:
    """Yield the newest dead letters from the dead-letter topic of the edge cluster.

    A dead letter is an input line that could not be converted to an event.

    Args:
        edge: Settings of the edge cluster.
        records_max: Approximate maximum number of records to read. Each topic-partition gets an
            equal share, rounded up.
        print_message: Function that prints a human-readable progress message.

    Yields:
        Decoded dead letters of committed transactions, in offset order within each topic-partition.

    Raises:
        Unavailable: The cluster does not respond, the topic does not exist, or a record is not a
            dead letter in a known schema.
    """
    topic = events_topic(dead_letters.TYPE)
    cluster = Cluster(edge, "edge")
    info = cluster.topics([topic]).get(topic)
    if info is None:
        raise Unavailable(
            f"the edge cluster has no topic {topic}; `hourmark types apply` creates it"
        )
    partitions = [Partition(topic, number) for number in info.partitions]
    starts, ends = cluster.starts(partitions), cluster.ends(partitions)
    share = -(-records_max // len(partitions))
    spans = {p: (max(starts[p], ends[p] - share), int(ends[p])) for p in partitions}
    schemas = _schemas(edge)
    progress = ReadProgress(sum(end - start for start, end in spans.values()), print_message)
    with contextlib.closing(CommittedReader(edge, "edge", stall_s=_STALL_S)) as reader:
        for runs in reader.read(spans):
            for record in (record for run in runs for record in run.records):
                progress.count_step()
                yield _decoded(
                    record.value() or b"",
                    schemas,
                    f"{topic}-{record.partition()} offset {record.offset()}",
                )


def read_dead_letters_from_buckets(
    storage: Storage,
    bucket_seconds: int,
    letter_filter: DeadLetterFilter,
    print_message: PrintMessage,
) -> Iterator[Event]:
    """Yield the dead letters in the closed buckets of a time span, in order of hours.

    A dead letter is an input line that could not be converted to an event. Only buckets whose hour
    overlaps the filter's time span are read; the other conditions of the filter are not applied. A
    dead letter that arrived late is stored in the bucket of a later hour, and is yielded only if
    that bucket is read.

    Args:
        storage: Storage with the buckets.
        bucket_seconds: Length of a bucket, in seconds.
        letter_filter: Filter whose time span selects the buckets.
        print_message: Function that prints a human-readable progress message.

    Yields:
        Decoded dead letters, by field name.

    Raises:
        BadMarker: The `_SUCCESS` file of a bucket is invalid.
        DamagedBucketFile: A file of a bucket is missing or damaged.
        StorageError: Storage is unavailable.
    """
    hours = [
        hour
        for hour in list_hours(storage, dead_letters.TYPE, bucket_seconds)
        if hour.end_ms > letter_filter.since_ms and hour.start_s * 1000 < letter_filter.until_ms
    ]
    progress = ReadProgress(len(hours), print_message, "buckets")
    for hour in hours:
        progress.count_step()
        if (manifest := find_manifest(storage, dead_letters.TYPE, hour)) is not None:
            yield from read_events(storage, dead_letters.TYPE, hour, manifest)


class ReadProgress:
    """Reporter that prints the progress of a long operation at most once every five seconds.

    Args:
        total: Expected number of steps.
        print_message: Function that prints a human-readable message.
        unit: Plural noun for the steps, used in messages.
        action: What a step does, as a past participle.
    """

    def __init__(
        self,
        total: int,
        print_message: PrintMessage,
        unit: str = "records",
        action: str = "read",
    ) -> None:
        self._total, self._say, self._of, self._action = total, print_message, unit, action
        self._done, self._said_s = 0, time.monotonic()

    def count_step(self) -> None:
        """Count one completed step, and print the progress if it is due.

        Progress is due if more than five seconds have passed since the last message.
        """
        self._done += 1
        if (now_s := time.monotonic()) - self._said_s > _PROGRESS_S:
            self._said_s = now_s
            self._say(f"{self._done:,} of {self._total:,} {self._of} {self._action}")


def _schemas(edge: KafkaCluster) -> dict[int, Datum]:
    # Rules revisions contain the schemas, so no registry is needed.
    known = {
        version.schema_id: version.schema
        for rules in read_rules(edge).revisions
        for name, version in rules.types.items()
        if name == dead_letters.TYPE
    }
    return {schema_id: Datum(schema) for schema_id, schema in known.items()}


def _decoded(value: bytes, schemas: dict[int, Datum], place: str) -> Event:
    try:
        schema_id, datum = unframe(value)
        return schemas[schema_id].decode(datum)
    except (ValueError, KeyError) as error:
        raise Unavailable(
            f"{place} is not a dead letter that this version of Hourmark can read "
            f"({error!r:.200}); check that kafka.edge is the correct site"
        ) from error
