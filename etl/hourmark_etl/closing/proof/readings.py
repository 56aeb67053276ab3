"""Whether a range was read twice, and otherwise the second time: its audit records are compared
before anything is frozen.

Parsing is a pure function of a range and of its rules revision, so a retry makes the very same
audit record, and whatever its rows are, they are the same rows. Software that reads a retry
otherwise (other zone data, another parser) breaks that: the range has two records that differ, and
rows of both readings. Each hour would be proved by the record that speaks of it, and one event
stand in two buckets. What each record promises cannot tell it (counts and sums of both are kept),
so the records are compared:

- Each row of an audit file has its record's `content`, a digest of all that the record promises and
  of all its ids, whatever type and hour the row is of: ids tell of a time that moved within its
  hour, counts and sums of low 64 bits do not. Two contents of one range are a conflict. A range is
  known by its id and `observed_at`, of which the id is made, too.
- Once for each cut, audit files that came since the last one are compared with each other, and with
  older ones that hold ranges observed at the same time (each file says when its ranges were): a
  retry that soon follows finds a file or two.
- Records with equal contents and different checksums of values are a conflict, too: the same ids,
  and other values. A record without checksums (of a service before 0.4.0) is compared by its
  content alone.
- A record with a content that was compared before says nothing new: a copy of one whose conflict an
  override has closed holds nothing a second time.

A conflict holds each type and hour that one of the records names (`held`): of what is closed and
settled, nothing, as what was promised there stands in its bucket; what is late, the hour that would
list it. Other types and hours go on. No deadline waives it, as nothing is missing: an override
closes the hour as `forced`, and its manifest names the range and both records.

A record that promises nothing (blank lines alone) has no rows that could stand anywhere, and is not
compared. Nor is what audit files no longer hold: they are kept longer than topics, and until then a
retry finds the first reading.
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
from hourmark_etl.arrow import distinct, matching, unmatched
from hourmark_etl.closing.cut.cut import shortened
from hourmark_etl.closing.proof.evidence import AuditPath, PromisesItem, file_items
from hourmark_etl.closing.runner import Runner
from hourmark_etl.ledger.conflicts import AuditFile, Conflict, compared_files, uncompared_files
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.frontiers import first_unsealed
from hourmark_etl.model import FIRST_SITE, Frontier
from hourmark_etl.staging.files import AUDIT_SCHEMA, read_all
from hourmark_etl.storage import Storage

RANGE: Final = ["range_id", "observed_at"]
READING: Final = [*RANGE, "content", "values"]
SITED: Final = AUDIT_SCHEMA.append(pa.field("site", pa.string()))  # of which site each row is
READINGS: Final = pa.schema([AUDIT_SCHEMA.field(name) for name in READING])
ROWS_MAX: Final = 1_000_000  # promises compared at a time: 24 bytes each, in the driver
_HERE_MAX: Final = 8  # items that are read in the driver: a job on executors takes longer


class Reading(NamedTuple):
    """One of the contents of a range.

    `offset`: central, of its first record; `promised`: (type, hour, count) of that; `site`: whose
    audit topic has it.
    """

    offset: int
    origin: str
    promised: tuple[tuple[str, int, int], ...]
    site: str = FIRST_SITE


class ReadingsDiffer(NamedTuple):
    """A range, and its readings by offset: two at least."""

    range_id: bytes
    readings: tuple[Reading, ...]

    def text(self, length_s: int) -> str:
        """Human-readable; `length_s`: of an hour."""
        told = []
        for reading in self.readings:
            promised = [
                f"{count} of {event_type} {Hour(hour_s, length_s)}"
                for event_type, hour_s, count in reading.promised
            ]
            at = f"audit offset {reading.offset}" + (
                "" if reading.site == FIRST_SITE else f" of {reading.site}"
            )
            told.append(f"{at} ({reading.origin}): {', '.join(shortened(promised))}")
        alike = len({reading.promised for reading in self.readings}) == 1
        same = ". They promise as many events: ids, or checksums of values, differ" if alike else ""
        return (
            f"range {self.range_id.hex()} has {len(told)} audit records that differ: "
            f"{'; '.join(shortened(told))}{same}"
        )


class Compared(NamedTuple):
    """Files that are compared with all others now, and what differs for the first time."""

    files: tuple[AuditFile, ...]
    differences: tuple[ReadingsDiffer, ...]


@dataclasses.dataclass(frozen=True)
class Comparer:
    """Reads audit files; changes nothing."""

    runner: Runner
    storage: Storage
    database: Database
    rows_max: int = ROWS_MAX

    def next(self, without: Collection[str]) -> Compared | None:
        """The next files that are to be compared, but for these paths; None if there are none.

        Unreadable names a file.
        """
        files = uncompared_files(self.database, self.rows_max, without)
        if not files:
            return None
        new = self._read(functools.partial(readings, storage=self.storage), files)
        older = self._older(new, without)
        known = self._read(functools.partial(readings, storage=self.storage, of=new), older)
        found = differing(new, known)
        if not len(found):
            return Compared(tuple(files), ())
        rows = self._read(
            functools.partial(rows_of, storage=self.storage, of=found), [*older, *files]
        )
        return Compared(tuple(files), differences(rows))

    def _older(self, new: pa.Table, without: Collection[str]) -> list[AuditFile]:
        """Compared files that may hold one of these ranges."""
        if not len(new):
            return []
        times = np.unique(new.column("observed_at").to_numpy())
        between = compared_files(self.database, int(times[0]), int(times[-1]))
        spans = np.array(
            [(f.observed_from_ms, f.observed_to_ms) for f in between], np.int64
        ).reshape(-1, 2)
        hit = np.searchsorted(times, spans[:, 0]) < np.searchsorted(times, spans[:, 1], "right")
        return [
            f
            for f, within in zip(between, hit.tolist(), strict=True)
            if within and f.path not in without
        ]

    def _read(self, work: functools.partial[pa.Table], files: Sequence[AuditFile]) -> pa.Table:
        items = file_items({AuditPath(f.path, f.site) for f in files})
        runner = self.runner if len(items) > _HERE_MAX else Runner()
        schema = SITED if work.func is rows_of else READINGS
        return pa.concat_tables([schema.empty_table(), *runner.map(work, items)])


def readings(item: PromisesItem, storage: Storage, of: pa.Table | None = None) -> pa.Table:
    """READINGS of the files, each once; `of`: only of these ranges (columns RANGE)."""
    found = pa.concat_tables([read_all(storage, path, READING) for path, _ in item.files])
    return distinct(found if of is None else matching(found, of, RANGE), READING)


def rows_of(item: PromisesItem, storage: Storage, of: pa.Table) -> pa.Table:
    """All rows of the files that are of these ranges (columns RANGE), as of SITED."""
    found = [SITED.empty_table()]
    for path, site in item.files:
        rows = matching(read_all(storage, path, AUDIT_SCHEMA.names), of, RANGE)
        found.append(rows.append_column("site", pa.array([site] * len(rows), "string")))
    return pa.concat_tables(found)


def differing(new: pa.Table, known: pa.Table) -> pa.Table:
    """Return ranges (columns RANGE) with a content, or checksums, among the new that are not known,
    and others. Pure.

    Records without checksums are compared by content alone.
    """
    found = [_with_several(new, known, [*RANGE, "content"])]
    new, known = (of.filter(of.column("values").is_valid()) for of in (new, known))
    return distinct(
        pa.concat_tables([*found, _with_several(new, known, [*RANGE, "values"])]), RANGE
    )


def _with_several(new: pa.Table, known: pa.Table, columns: list[str]) -> pa.Table:
    """Return ranges with several values of these columns, of which one among the new is not
    known.
    """
    readings = distinct(pa.concat_tables([new, known]), columns)
    counted = readings.group_by(RANGE, use_threads=False).aggregate([([], "count_all")])
    several = counted.filter(pc.greater(counted.column("count_all"), 1)).select(RANGE)
    return matching(several, unmatched(new, known, columns), RANGE)


def differences(rows: pa.Table) -> tuple[ReadingsDiffer, ...]:
    """Of all rows (SITED) of ranges that differ. Pure."""
    ranges = defaultdict[tuple[bytes, int], dict[tuple[bytes, bytes | None], list[dict[str, Any]]]](
        dict
    )
    for row in rows.sort_by("offset").to_pylist():
        ranges[row["range_id"], row["observed_at"]].setdefault(
            (row["content"], row["values"]), []
        ).append(row)
    return tuple(
        ReadingsDiffer(range_id, tuple(sorted(map(_reading, contents.values()))))
        for (range_id, _), contents in sorted(ranges.items())
    )


def _reading(rows: Sequence[Mapping[str, Any]]) -> Reading:
    """Of the rows of all records with one content, by offset."""
    promised = {(r["type"], r["hour"], r["count"]) for r in rows}
    return Reading(rows[0]["offset"], rows[0]["origin"], tuple(sorted(promised)), rows[0]["site"])


def held(
    of: ReadingsDiffer, frontiers: Mapping[str, Frontier], length_s: int, now_ms: int
) -> list[Conflict]:
    """What a difference holds: of each type and hour that a reading names, the hour that would list
    its rows. Pure.
    """
    what = of.text(length_s)
    found = {
        (event_type, held_s)
        for reading in of.readings
        for event_type, hour_s, _ in reading.promised
        if (held_s := _held_hour(hour_s, reading, frontiers.get(event_type))) is not None
    }
    return [
        Conflict(
            event_type=event_type,
            hour_s=hour_s,
            range_id=of.range_id,
            what=what,
            found_at_ms=now_ms,
        )
        for event_type, hour_s in sorted(found)
    ]


def _held_hour(hour_s: int, reading: Reading, frontier: Frontier | None) -> int | None:
    """None where what was promised there is settled: it stands in a bucket that is closed, or is
    fixed.
    """
    if frontier is None:
        return hour_s
    unsealed_s = first_unsealed(frontier).start_s
    seals = [h.seal for h in frontier.sealed_hours if h.seal]
    settled_next = seals[-1].audit_next if seals else frontier.settled_next
    if hour_s < unsealed_s and reading.offset < settled_next.at(reading.site):
        return None
    return max(hour_s, unsealed_s)
