"""Searches the ledger, staged files and closed buckets for one event.

If the event's id is known, little is read: the ledger contains the first and last id of each staged
group, and bucket files are sorted by id, so few blocks are decoded. Files that are not sorted are
read completely.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import fastavro

from hourmark.errors import HourmarkError
from hourmark.kafka.clients import Partition
from hourmark.records.event_id import EventId
from hourmark.records.hours import Hour
from hourmark.records.manifest import Manifest
from hourmark.records.ranges import HEX_128, RangeId
from hourmark_etl.buckets.avro_container import Block, ContainerReader
from hourmark_etl.buckets.reader import DamagedBucketFile, Event, find_manifest, read_manifest
from hourmark_etl.humanize import format_count
from hourmark_etl.ids.removed_buckets import separate_removed
from hourmark_etl.ledger.batches import read_partition_positions
from hourmark_etl.ledger.closed import ClosedBucket, closed_buckets
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.frontiers import frontiers
from hourmark_etl.ledger.hosts.reporters import reporters
from hourmark_etl.ledger.staged.listings import read_groups_with_buckets
from hourmark_etl.model import ReportedSource, StagedGroup
from hourmark_etl.operators.dead_letter_reader import PrintMessage, ReadProgress
from hourmark_etl.operators.tracing.kafka_search import decode_envelope
from hourmark_etl.operators.tracing.results import (
    ByEventId,
    ByFilePosition,
    ByRangePosition,
    FoundBucketRecord,
    FoundStagedRow,
    OldestOpenHour,
    SearchCriterion,
    SearchResult,
    run_search,
)
from hourmark_etl.staging.files import IdRange, RowSlice, read_rows
from hourmark_etl.storage import Storage, StorageError

_TAILER: Final = "tailer"  # `kind` of a report
_PLACE: Final = ("event_id", "range_id", "partition", "offset")


class StorageSearch:
    """Search for a traced event in the ledger, in staged files and in closed buckets.

    Staged files contain events that were read from Kafka. The ledger, which is the state database
    of the ETL, is opened at its first use. If a server does not respond, the methods do not raise
    an exception. They return a result whose `error` is set, so that a trace can continue.

    Args:
        open_ledger: Function that opens the ledger.
        storage: Storage with the staged files and buckets.
        bucket_seconds: Length of a bucket in seconds.
        print_message: Function that prints a human-readable progress message.
    """

    def __init__(
        self,
        open_ledger: Callable[[], Database],
        storage: Storage,
        bucket_seconds: int,
        print_message: PrintMessage,
    ) -> None:
        self._open_ledger, self._storage, self._length_s, self._print_message = (
            open_ledger,
            storage,
            bucket_seconds,
            print_message,
        )
        self._opened: Database | HourmarkError | None = None

    @property
    def _database(self) -> Database:
        if self._opened is None:
            try:
                self._opened = self._open_ledger()
            except HourmarkError as error:
                self._opened = error
        if isinstance(self._opened, HourmarkError):
            raise self._opened
        return self._opened

    def close(self) -> None:
        """Close the connection to the ledger.

        Does nothing if the ledger (the ETL's state database) was never opened.
        """
        if isinstance(self._opened, Database):
            self._opened.close()

    def oldest_open_hour(self, event_type: str) -> SearchResult[OldestOpenHour]:
        """Return the oldest hour of an event type whose bucket is not closed yet.

        Args:
            event_type: Name of the event type.

        Returns:
            The search result. Its `value` is None if the ledger (the ETL's state database) does not
            contain the type.
        """

        def search() -> SearchResult[OldestOpenHour]:
            known = frontiers(self._database, self._length_s)
            found = next(
                (
                    OldestOpenHour(hour=f.hour, state=f.state)
                    for f in known
                    if f.event_type == event_type
                ),
                None,
            )
            return SearchResult(found, "the ledger", is_complete=True)

        return run_search("the ledger", search)

    def tailer_reports(self, host: str) -> SearchResult[tuple[ReportedSource, ...]]:
        """Return the latest reports of the tailer (the agent that reads log files) on a host.

        Args:
            host: Id or name of the host.

        Returns:
            The search result. Its `value` has one report for each log source, sorted by host id and
            source. It is None if no tailer on this host has ever reported.
        """

        def search() -> SearchResult[tuple[ReportedSource, ...]]:
            known = (
                r
                for r in reporters(self._database)
                if r.kind == _TAILER and host in (r.host_id, r.host_name)
            )
            found = tuple(sorted(known, key=lambda r: (r.host_id, r.source)))
            return SearchResult(found or None, "the ledger's reports", is_complete=True)

        return run_search("the ledger's reports", search)

    def staging_offset(self, central: Partition) -> SearchResult[int]:
        """Return the next offset of a central topic-partition that the ETL will read.

        Args:
            central: Topic-partition on the central cluster.

        Returns:
            The search result. Its `value` is None if the ledger (the ETL's state database) has no
            position for the topic-partition, or more than one.
        """

        def search() -> SearchResult[int]:
            known = read_partition_positions(self._database, central)
            return SearchResult(
                known[0].next_offset if len(known) == 1 else None,
                "the ledger's positions",
                is_complete=True,
            )

        return run_search("the ledger's positions", search)

    def find_staged_row(
        self, event_type: str, hour: Hour, criterion: ByEventId | ByRangePosition
    ) -> SearchResult[FoundStagedRow]:
        """Search staged files for the row of an event.

        Staged files contain the events read from Kafka. They are deleted some time after the bucket
        is closed.

        Args:
            event_type: Type of the event.
            hour: Hour of the event's timestamp.
            criterion: Id of the event, or its position in a byte range.

        Returns:
            The search result. Its `value` is None if no staged file of this type and hour contains
            the event.
        """

        def search() -> SearchResult[FoundStagedRow]:
            groups = [
                (g, listed)
                for g, listed in read_groups_with_buckets(self._database, event_type, hour.start_s)
                if isinstance(criterion, ByRangePosition)
                or g.first_id <= bytes(criterion.event_id) <= g.last_id
            ]
            progress = ReadProgress(len(groups), self._print_message, "staged files")
            found = None
            for group, listed_s in groups:
                progress.count_step()
                if (found := self._staged_in(group, listed_s, hour, criterion)) is not None:
                    break
            return SearchResult(
                found,
                f"{format_count(len(groups), 'staged file')} of {event_type} {hour}",
                is_complete=True,
            )

        return run_search(f"staged files of {event_type} {hour}", search)

    def find_bucket_record(
        self, event_type: str, hour: Hour, criterion: SearchCriterion
    ) -> SearchResult[FoundBucketRecord]:
        """Search closed buckets for the record of an event.

        The method searches the bucket of the event's hour, and later buckets that contain late
        events of this hour. If the ledger (the ETL's state database) is not available, only the
        former is searched.

        Args:
            event_type: Type of the event.
            hour: Hour of the event's timestamp.
            criterion: Id of the event, or its position in a file.

        Returns:
            The search result. Its `value` is None if no closed bucket contains the event. A damaged
            bucket file is reported in `error`.
        """

        def search() -> SearchResult[FoundBucketRecord]:
            buckets, why = self._buckets(event_type, hour)
            progress = ReadProgress(
                sum(len(b.files) for b in buckets), self._print_message, "files of buckets"
            )
            places = (
                (b, *file) for b in buckets for file in self._files_with(b, criterion, progress)
            )
            found = next(places, None)
            where = f"{format_count(len(buckets), 'closed bucket')} with events of {event_type} {hour}{why}"
            return SearchResult(
                None if found is None else self._in_bucket(*found), where, is_complete=not why
            )

        return run_search(f"closed buckets of {event_type}", search)

    def _buckets(self, event_type: str, hour: Hour) -> tuple[tuple[ClosedBucket, ...], str]:
        # The second value states why later buckets are missing; it is empty if none is.
        try:
            found = closed_buckets(self._database, {event_type: [hour.start_s]}, self._length_s)
            existing = separate_removed(
                self._storage, found.get(event_type, ()), self._length_s, needs_files=True
            )
            gone = format_count(len(existing.removed), "bucket")
            why = f"; {gone} removed by retention cannot be searched" if existing.removed else ""
            return existing.searchable, why
        except HourmarkError as error:
            manifest = find_manifest(self._storage, event_type, hour)
            own = () if manifest is None else (_closed(event_type, hour, manifest),)
            return (
                own,
                f"; later buckets, which may have it as a late event, were not searched: {error}",
            )

    def _staged_in(
        self,
        group: StagedGroup,
        listed_s: int | None,
        hour: Hour,
        criterion: ByEventId | ByRangePosition,
    ) -> FoundStagedRow | None:
        rows = [RowSlice(group.first_row, group.rows)]
        if isinstance(criterion, ByEventId):
            low = int.from_bytes(criterion.event_id, "big")
            table, _ = read_rows(self._storage, group.path, rows, _PLACE, IdRange(low, low))
            found = table.to_pylist()
        else:
            table, _ = read_rows(self._storage, group.path, rows, _PLACE)
            of_range = [
                row for row in table.to_pylist() if row["range_id"] == bytes(criterion.range_id)
            ]
            found = [
                row
                for row in of_range
                if self._position(group, row["event_id"]) == criterion.position
            ]
        if not found:
            return None
        row = found[0]
        return FoundStagedRow(
            path=group.path,
            event_id=EventId(row["event_id"]),
            range_id=RangeId(row["range_id"]),
            partition=row["partition"],
            offset=row["offset"],
            hour=hour,
            listed=None if listed_s is None else Hour(listed_s, self._length_s),
        )

    def _position(self, group: StagedGroup, event_id: bytes) -> int | None:
        low = int.from_bytes(event_id, "big")
        table, _ = read_rows(
            self._storage,
            group.path,
            [RowSlice(group.first_row, group.rows)],
            ("datum",),
            IdRange(low, low),
        )
        return next(
            (
                int(decode_envelope(group.event_type, datum)["position"])
                for datum in table.column("datum").to_pylist()
            ),
            None,
        )

    def _files_with(
        self, bucket: ClosedBucket, criterion: SearchCriterion, progress: ReadProgress
    ) -> Iterator[tuple[str, int, Event]]:
        for path, _ in bucket.files:
            progress.count_step()
            try:
                with self._storage.open(path) as file:
                    yield from (
                        (path, row, event)
                        for row, event in _events_in(ContainerReader(file), criterion)
                    )
            except StorageError:
                raise
            except Exception as error:  # damaged bytes make a decoder raise anything
                hour = Hour(bucket.hour_s, self._length_s)
                raise DamagedBucketFile(
                    f"{self._storage.url(path)} is damaged ({type(error).__name__}: {error}); "
                    f"`hourmark bucket verify {bucket.event_type} {hour}` lists all problems"
                ) from error

    def _in_bucket(
        self, bucket: ClosedBucket, path: str, row: int, event: Event
    ) -> FoundBucketRecord:
        hour = Hour(bucket.hour_s, self._length_s)
        manifest = read_manifest(self._storage, bucket.event_type, hour)
        return FoundBucketRecord(
            hour=hour,
            file=path,
            row=row,
            event=event,
            grade=manifest.grade.value,
            closed_at_ms=manifest.closed_at_ms,
        )


def _closed(event_type: str, hour: Hour, manifest: Manifest) -> ClosedBucket:
    files = tuple(
        (f"{hour.bucket_path(event_type)}/{file.name}", file.blake2b) for file in manifest.files
    )
    return ClosedBucket(
        event_type=event_type,
        hour_s=hour.start_s,
        origin_hours=(hour,),
        events=manifest.events,
        index=(),
        files=files,
    )


def _events_in(
    container: ContainerReader, criterion: SearchCriterion
) -> Iterator[tuple[int, Event]]:
    # With an id, a block is decoded only if the id lies between its first id and the next block's.
    row = 0
    if not isinstance(criterion, ByEventId):
        for block in container:
            yield from (
                (row + n, event)
                for n, event in enumerate(_decoded(container, block))
                if _is_at(event, criterion)
            )
            row += block.records
        return
    wanted = bytes(criterion.event_id)
    begun = ((container.content(block)[:16], block) for block in container)
    end = (b"\xff" * 16, Block(0, b""))
    for (first, block), (after, _) in itertools.pairwise(itertools.chain(begun, [end])):
        if (
            first <= wanted <= after or after < first
        ):  # the second condition: the file is not sorted
            events = enumerate(_decoded(container, block))
            yield from ((row + n, event) for n, event in events if event["event_id"] == wanted)
        row += block.records


def _is_at(event: Event, criterion: ByRangePosition | ByFilePosition) -> bool:
    file: Any = event["file"]
    if event["position"] != criterion.position or file is None:
        return False
    if isinstance(criterion, ByRangePosition):
        return bool((file["id"], file["generation"]) == (criterion.file_id, criterion.generation))
    named = (
        HEX_128.fullmatch(criterion.host) is not None or criterion.host == event["host"]
    )  # buckets do not contain host ids
    return (
        named
        and criterion.file in (file["id"], event["source"])
        and criterion.generation in (None, file["generation"])
    )


def _decoded(container: ContainerReader, block: Block) -> Iterator[Event]:
    return cast(
        Iterator[Event], fastavro.reader(io.BytesIO(container.single_block_container(block)))
    )
