"""Detects ranges that were parsed twice with different results, by comparing audit records.

Parsing is a pure function of a range and its rules revision, so a retry produces the same audit
record and the same rows. Software that parses a retry differently (other time zone data, another
parser) breaks that: the range has two different records, and rows of both. Each hour would be
proved by the record that names it, and one event would be in two buckets. Counts and sums of both
records are kept, so the proof cannot detect it. Therefore audit records are compared before
anything is frozen:

- Each row of an audit file has its record's `content`, a digest of everything the record promises
  and of all its ids, for all types and hours. Ids reveal a time that moved within its hour; counts
  and sums of low 64 bits do not. Two contents of one range are a conflict. A range is identified by
  its id and `observed_at`, which is part of what the id is derived from.
- Once per cut, new audit files are compared with each other, and with older files that contain
  ranges observed at the same time. Each file records the times of its ranges, so a retry that
  follows soon needs only one or two files.
- Records with equal contents and different checksums of values are a conflict too: the ids are
  equal, the values are not. A record without checksums (of a service before 0.4.0) is compared by
  its content alone.
- A record whose content was compared before adds no conflict: it is a copy.

A conflict blocks each type and hour that one of the records names (`build_conflicts`). Hours that
are closed and settled are not affected, because what was promised there is in the bucket; late rows
block the hour that would list them. Other types and hours continue. No deadline waives a conflict,
because nothing is missing: an override closes the hour as `forced`, and its manifest names the
range and both records.

A record that promises nothing (only blank lines) is not compared. Neither are records that audit
files no longer contain: these files are kept longer than topics, so a retry finds the first record.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hourmark.records.hours import Hour
from hourmark_etl.arrow import anti_join, distinct_values, semi_join
from hourmark_etl.closing.cut.cut import limit_lines
from hourmark_etl.closing.proof.evidence import AuditFilesItem, AuditPath, plan_file_items
from hourmark_etl.closing.runner import Runner
from hourmark_etl.ledger.conflicts import (
    AuditFile,
    Conflict,
    find_compared_files,
    find_uncompared_files,
)
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.frontiers import first_unsealed_hour
from hourmark_etl.model import FIRST_SITE, Frontier
from hourmark_etl.staging.files import AUDIT_SCHEMA, read_all
from hourmark_etl.storage import Storage

RANGE: Final = ["range_id", "observed_at"]
READING: Final = [*RANGE, "content", "values"]
SITED: Final = AUDIT_SCHEMA.append(pa.field("site", pa.string()))  # the site of each row
READINGS: Final = pa.schema([AUDIT_SCHEMA.field(name) for name in READING])
ROWS_MAX: Final = 1_000_000  # promises compared at a time: 24 bytes each, in the driver
_HERE_MAX: Final = (
    8  # up to this many items are read in the driver, because a Spark job takes longer
)


class AuditVersion(NamedTuple):
    """One of several audit records that describe the same byte range differently.

    An audit record states how many events a byte range of a log file contains for each event type
    and hour.

    Attributes:
        offset: Offset of the first record with this content in its topic on the central cluster.
        origin: Human-readable source of the byte range.
        promised: Numbers of events according to the record, as tuples of event type, hour (Unix
            seconds) and number.
        site: Id of the site whose audit topic contains the record.
    """

    offset: int
    origin: str
    promised: tuple[tuple[str, int, int], ...]
    site: str = FIRST_SITE


class ContradictoryRange(NamedTuple):
    """A byte range of a log file with contradictory audit records.

    An audit record states how many events a byte range of a log file contains for each event type
    and hour. All records of the same range must have the same content.

    Attributes:
        range_id: Id of the byte range, 8 bytes.
        readings: One audit record for each distinct content.
    """

    range_id: bytes
    readings: tuple[AuditVersion, ...]

    def text(self, length_s: int) -> str:
        """Describe the byte range and its contradictory audit records.

        Args:
            length_s: Length of a bucket in seconds.

        Returns:
            A human-readable text with the content of each record.
        """
        lines = []
        for reading in self.readings:
            promised = [
                f"{count} of {event_type} {Hour(hour_s, length_s)}"
                for event_type, hour_s, count in reading.promised
            ]
            at = f"audit offset {reading.offset}" + (
                "" if reading.site == FIRST_SITE else f" of {reading.site}"
            )
            lines.append(f"{at} ({reading.origin}): {', '.join(limit_lines(promised))}")
        alike = len({reading.promised for reading in self.readings}) == 1
        same = ". They promise as many events: ids, or checksums of values, differ" if alike else ""
        return (
            f"range {self.range_id.hex()} has {len(lines)} audit records that differ: "
            f"{'; '.join(limit_lines(lines))}{same}"
        )


class AuditComparison(NamedTuple):
    """Result of comparing a batch of audit files with all earlier ones.

    An audit record states how many events a byte range of a log file contains for each event type
    and hour. All records of the same range must have the same content.

    Attributes:
        files: The files of the batch. They need not be compared again.
        differences: Byte ranges for which a record in these files contradicts another record; empty
            if there are none.
    """

    files: tuple[AuditFile, ...]
    differences: tuple[ContradictoryRange, ...]


@dataclasses.dataclass(frozen=True)
class AuditComparer:
    """Searches staged audit files for byte ranges that have contradictory audit records.

    An audit record states how many events a byte range of a log file contains for each event type
    and hour. Each file is compared with all earlier files. The caller must record in the ledger
    (the ETL's state database) which files were compared.

    Attributes:
        runner: Runs tasks that read files.
        storage: Storage with the audit files.
        database: Database of the ledger.
        rows_max: Maximum number of rows that are compared at a time.
    """

    runner: Runner
    storage: Storage
    database: Database
    rows_max: int = ROWS_MAX

    def compare_next(self, skip_paths: Collection[str]) -> AuditComparison | None:
        """Compare the next audit files that have not been compared yet with all earlier ones.

        Each call compares a limited number of files. Record them as compared, and repeat the call
        until it returns None.

        Args:
            skip_paths: Paths of files to skip, for example because they cannot be read.

        Returns:
            The compared files and the differences; None if all files have been compared.

        Raises:
            Unreadable: A file is missing or damaged and must be staged again first.
        """
        files = find_uncompared_files(self.database, self.rows_max, skip_paths)
        if not files:
            return None
        new = self._read(functools.partial(read_contents, storage=self.storage), files)
        older = self._earlier_files(new, skip_paths)
        known = self._read(
            functools.partial(read_contents, storage=self.storage, ranges=new), older
        )
        found = find_differing_ranges(new, known)
        if not len(found):
            return AuditComparison(tuple(files), ())
        rows = self._read(
            functools.partial(read_range_rows, storage=self.storage, ranges=found), [*older, *files]
        )
        return AuditComparison(tuple(files), group_differences(rows))

    def _earlier_files(self, new: pa.Table, skip_paths: Collection[str]) -> list[AuditFile]:
        # Return the files, compared earlier, that may contain ranges of the new rows.
        if not len(new):
            return []
        times = np.unique(new.column("observed_at").to_numpy())
        between = find_compared_files(self.database, int(times[0]), int(times[-1]))
        spans = np.array(
            [(f.observed_from_ms, f.observed_to_ms) for f in between], np.int64
        ).reshape(-1, 2)
        hit = np.searchsorted(times, spans[:, 0]) < np.searchsorted(times, spans[:, 1], "right")
        return [
            f
            for f, within in zip(between, hit.tolist(), strict=True)
            if within and f.path not in skip_paths
        ]

    def _read(self, work: functools.partial[pa.Table], files: Sequence[AuditFile]) -> pa.Table:
        items = plan_file_items({AuditPath(f.path, f.site) for f in files})
        runner = self.runner if len(items) > _HERE_MAX else Runner()
        schema = SITED if work.func is read_range_rows else READINGS
        return pa.concat_tables([schema.empty_table(), *runner.map(work, items)])


def read_contents(
    item: AuditFilesItem, storage: Storage, ranges: pa.Table | None = None
) -> pa.Table:
    """Return the distinct contents of the audit records in the given files.

    Args:
        item: The files of audit records.
        storage: Storage with the files.
        ranges: Byte ranges to return, with the columns `range_id` and `observed_at`; None for all.

    Returns:
        The distinct rows of the columns `range_id`, `observed_at` (time at which a service first
        received the range), `content` (digest of the record's event counts and ids) and `values`
        (digest of the record's checksums; may be null).

    Raises:
        Unreadable: A file is missing or damaged and must be staged again first.
    """
    found = pa.concat_tables([read_all(storage, path, READING) for path, _ in item.files])
    return distinct_values(found if ranges is None else semi_join(found, ranges, RANGE), READING)


def read_range_rows(item: AuditFilesItem, storage: Storage, ranges: pa.Table) -> pa.Table:
    """Return all rows of given byte ranges in files of audit records, with the site of each row.

    A row states how many events a byte range of a log file contains for one event type and hour.

    Args:
        item: The files of audit records.
        storage: Storage with the files.
        ranges: The byte ranges, with the columns `range_id` and `observed_at`.

    Returns:
        A table with all columns of audit files and a last column `site`; no rows if nothing
        matches.

    Raises:
        Unreadable: A file is missing or damaged and must be staged again first.
    """
    found = [SITED.empty_table()]
    for path, site in item.files:
        rows = semi_join(read_all(storage, path, AUDIT_SCHEMA.names), ranges, RANGE)
        found.append(rows.append_column("site", pa.array([site] * len(rows), "string")))
    return pa.concat_tables(found)


def find_differing_ranges(new_contents: pa.Table, known_contents: pa.Table) -> pa.Table:
    """Return the byte ranges for which a new audit record contradicts another record.

    An audit record states how many events a byte range of a log file contains for each event type
    and hour. Two records of a range contradict each other if their `content` differs, or if both
    have checksums and their `values` differ. The function performs no I/O.

    Args:
        new_contents: Contents of new audit records, from `read_contents`.
        known_contents: Contents of audit records that were compared earlier.

    Returns:
        Distinct byte ranges, with the columns `range_id` and `observed_at`; no rows if all records
        agree.
    """
    found = [_with_several(new_contents, known_contents, [*RANGE, "content"])]
    new_contents, known_contents = (
        of.filter(of.column("values").is_valid()) for of in (new_contents, known_contents)
    )
    return distinct_values(
        pa.concat_tables([*found, _with_several(new_contents, known_contents, [*RANGE, "values"])]),
        RANGE,
    )


def _with_several(new: pa.Table, known: pa.Table, columns: list[str]) -> pa.Table:
    # Return ranges with several values in these columns, at least one of them new.
    contents = distinct_values(pa.concat_tables([new, known]), columns)
    counted = contents.group_by(RANGE, use_threads=False).aggregate([([], "count_all")])
    several = counted.filter(pc.greater(counted.column("count_all"), 1)).select(RANGE)
    return semi_join(several, anti_join(new, known, columns), RANGE)


def group_differences(rows: pa.Table) -> tuple[ContradictoryRange, ...]:
    """Group the rows of contradictory audit records by byte range and content.

    An audit record states how many events a byte range of a log file contains for each event type
    and hour. The function performs no I/O.

    Args:
        rows: All rows of these byte ranges, as `read_range_rows` returns them.

    Returns:
        One entry per byte range, in the order of their ids.
    """
    ranges = defaultdict[tuple[bytes, int], dict[tuple[bytes, bytes | None], list[dict[str, Any]]]](
        dict
    )
    for row in rows.sort_by("offset").to_pylist():
        ranges[row["range_id"], row["observed_at"]].setdefault(
            (row["content"], row["values"]), []
        ).append(row)
    return tuple(
        ContradictoryRange(range_id, tuple(sorted(map(_create_reading, contents.values()))))
        for (range_id, _), contents in sorted(ranges.items())
    )


def _create_reading(rows: Sequence[Mapping[str, Any]]) -> AuditVersion:
    promised = {(r["type"], r["hour"], r["count"]) for r in rows}
    return AuditVersion(
        rows[0]["offset"], rows[0]["origin"], tuple(sorted(promised)), rows[0]["site"]
    )


def build_conflicts(
    difference: ContradictoryRange, frontiers: Mapping[str, Frontier], length_s: int, now_ms: int
) -> list[Conflict]:
    """Return the conflicts that are caused by a byte range with contradictory audit records.

    An audit record states how many events a byte range of a log file contains for each event type
    and hour. A conflict keeps the bucket of one type and hour open until an operator's override
    closes it. There is one conflict for each type and hour that the records name:

    - If the content of the bucket is not fixed yet, the conflict applies to this bucket.
    - If it is fixed and was compared with the record, there is no conflict.
    - Otherwise, the conflict applies to the first later bucket whose content is not fixed.

    The function performs no I/O.

    Args:
        difference: The byte range and its audit records.
        frontiers: The next hour to close, by event type.
        length_s: Length of a bucket in seconds.
        now_ms: Time of detection, in Unix milliseconds.

    Returns:
        Conflicts in the order of type and hour; empty if no bucket is affected.
    """
    what = difference.text(length_s)
    found = {
        (event_type, held_s)
        for reading in difference.readings
        for event_type, hour_s, _ in reading.promised
        if (held_s := _blocked_hour(hour_s, reading, frontiers.get(event_type))) is not None
    }
    return [
        Conflict(
            event_type=event_type,
            hour_s=hour_s,
            range_id=difference.range_id,
            what=what,
            found_at_ms=now_ms,
        )
        for event_type, hour_s in sorted(found)
    ]


def _blocked_hour(hour_s: int, reading: AuditVersion, frontier: Frontier | None) -> int | None:
    # Return the hour that a record's rows would be listed for; None if they are settled.
    if frontier is None:
        return hour_s
    if frontier.previous_hour is None and frontier.seal is None:
        return hour_s  # nothing is closed: an older hour is back-filled
    unsealed_s = first_unsealed_hour(frontier).start_s
    seals = [h.seal for h in frontier.sealed_hours if h.seal]
    settled_next = seals[-1].audit_next if seals else frontier.settled_next
    if hour_s < unsealed_s and reading.offset < settled_next.offset_of(reading.site):
        return None
    return max(hour_s, unsealed_s)
