"""Proves that every promise up to the cut is kept by rows of this hour or an earlier one.

A promise is the statement of one audit record for one type and hour: the number of distinct ids and
the sum of their low 64 bits. It counts for the frontier hour H of its type if its record lies below
the cut, and if it is of H, or of an earlier hour and not settled by an earlier seal (its record
lies at or after `settled_next`). Positions are offsets of the record's own site (`AuditOffsets`).
All types of a round are proved together.

**By sums.** The number and digest of newly promised events equal those of newly listed rows. The
digest is the sum, modulo 2^64, over all events of the id's low 64 bits plus the range id times an
odd constant. Staging stores it for each group, so no row is read. Only files with groups of audit
records that lie across the cut or across `settled_next` are read.

A proof by sums is never wrong in practice. Let m(x) be how often the id x is newly promised (a
duplicate record counts twice), r(x) how often it is newly listed, and M(R) and Q(R) the number of
promised events and listed rows of range R. Equal sums mean that the sum of m(x) - r(x) is 0, and
that the sum of (m(x) - r(x)) · tail(x) + weight · (M(R) - Q(R)) · R is 0 modulo 2^64. Tails and
range ids are digests, which no sender can choose. Unless all these differences are 0, this is one
linear equation between such numbers, which holds by chance once in about 2^60 proofs. So every
promised id is listed equally often. A loss that a duplicate compensates in number, or a duplicate
audit record without duplicate rows, makes the sums differ; then the join decides. And every listed
row belongs to a range that is newly promised, so none is unaudited, and earlier unaudited rows
remain so.

**Values.** A promise of a service since 0.4.0 has a checksum: the sum of the value hashes
(`hourmark.avro.value_hash`) of its records. Staging adds up the same hashes by group. If every
promise that counts and every group has one, their sums must be equal too. Ids and ranges are
already known to be equal, so a changed value makes the sums differ, unless all changes of hashes
add up to 0 modulo 2^64, which happens by chance once in 2^64 proofs. A promise counts each pair of
id and hash once: a batch with two contents of one id has more rows than ids, so counts differ, and
the join decides. If no promise has a checksum, the hour is proved by its ids alone, and its marker
counts no event as checked. If only some have one, the join decides range by range.

**By join.** Otherwise distinct rows and distinct promises are compared range by range (`promises`),
in tasks that read units of listed rows and files of audit records (`evidence`). Then:

- An earlier bucket's unaudited rows are added to the listed ones, so a range whose rows were listed
  in parts, before its record arrived, is complete. Other rows of earlier buckets are not needed:
  their ranges were promised below those buckets' cuts, and so settled by their seals.
- A late promise that is not kept, whose range was promised with the same content below
  `settled_next`, is a duplicate of a settled one and is ignored. So are late unaudited rows of a
  range that is promised there: they must be copies of its rows. This is verified: rows that no
  closed bucket holds come from a different parse (`copies`). Writing drops a late copy of a row in
  a closed bucket by its id, whatever its value: the bucket, which a checksum proved, does not
  change.
- The remaining promises, without exactly their rows, become findings. Ranges with two different
  audit records are not detected here, because rows of both may be listed; they are detected before
  anything is frozen (`readings`).
- Listed rows of ranges without a record are unaudited and are stored for later promises
  (`unaudited`). Rows of a range whose record they do not satisfy are not stored: if another record
  that they would have satisfied arrives after the hour was closed by its deadline, that record
  counts as not kept, and its hour waits for its deadline too. This errs on the safe side.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hourmark.records.hours import Hour
from hourmark_etl.arrow import anti_join, distinct_values, semi_join
from hourmark_etl.closing.proof.copies import LateRowsCheck, ReparsedRange, check_late_rows
from hourmark_etl.closing.proof.evidence import (
    AuditFilesItem,
    AuditPath,
    PromiseFilter,
    RangeEvidence,
    StagedRowsItem,
    origin_hours,
    plan_file_items,
    plan_promise_items,
    plan_row_items,
    read_item,
    read_item_by_part,
    read_new_unaudited,
    read_promises,
    read_settled_promises,
)
from hourmark_etl.closing.proof.promises import (
    KEY,
    KEYS,
    RangeCounts,
    UnmetPromise,
    compare_ranges,
    merge_counts,
)
from hourmark_etl.closing.proof.unaudited import UnauditedFile, write_unaudited
from hourmark_etl.closing.runner import Runner
from hourmark_etl.errors import Unreadable
from hourmark_etl.ledger.closed import read_unaudited_files
from hourmark_etl.ledger.database import CLOSER, Database
from hourmark_etl.ledger.staged.listings import (
    ProofTotals,
    find_audit_groups_between,
    find_counted_audit_groups,
    read_assigned_groups,
    read_proof_totals,
)
from hourmark_etl.model import (
    NO_AUDIT_OFFSETS,
    RANGE_WEIGHT,
    AuditOffsets,
    EventTotals,
    Frontier,
    IncompleteRanges,
    OriginHourTotals,
    to_unsigned,
)
from hourmark_etl.storage import Storage

FINDINGS_MAX: Final = 20  # named per type; all are counted
UNAUDITED_ROWS_MAX: Final = 20_000_000  # of a round: 32 bytes each, in the driver
OLDER: Final = pa.schema([*KEYS, ("count", "int64"), ("sum", "int64"), ("checksum", "uint64")])
_RANGES_HERE_MAX: Final = 1_000_000  # with more promises, ranges are compared in tasks of this size
_WRITERS: Final = 16  # small files written in parallel, because writing to HDFS is mostly waiting
_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Result of comparing an hourly bucket with the audit records.

    A promise is one entry of an audit record. It states how many events a byte range of a log file
    contains for one event type and hour. The bucket is complete if `findings` is empty.

    Attributes:
        method: `empty` if there are no promises and no rows, `sums` if only totals were compared,
            `join` if each byte range was compared.
        audit_records: Number of promises that were compared.
        promised: Number of events according to the promises.
        unaudited: Number of distinct event ids without a promise.
        checked: Number of promised events whose values were verified by a checksum.
        findings: Human-readable descriptions of the promises that the staged rows do not match.
        lacks: Byte ranges of these promises.
        books: Numbers of promised events, and of events without a promise, for each hour of event
            time.
        unaudited_file: File with the rows that have no promise; None if there are no such rows.
        listed: Totals of all staged rows that were compared.
        second_readings: Byte ranges that were parsed twice with different results.
        unknown: Human-readable reasons why some late rows (rows of earlier hours) could not be
            checked.
    """

    method: str
    audit_records: int
    promised: int
    unaudited: int
    checked: int = 0
    findings: tuple[str, ...] = ()
    lacks: IncompleteRanges = dataclasses.field(default_factory=IncompleteRanges)
    books: tuple[OriginHourTotals, ...] = ()
    unaudited_file: UnauditedFile | None = None
    listed: EventTotals = dataclasses.field(default_factory=EventTotals)
    second_readings: tuple[ReparsedRange, ...] = ()
    unknown: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prover:
    """Verifies that no event is missing from hourly buckets, by comparison with audit records.

    An audit record states how many events a byte range of a log file contains for each type and
    hour. The staged rows (events copied from Kafka) of the bucket must match these numbers.

    Attributes:
        runner: Runs tasks in this process or on Spark.
        storage: Storage with the staged files.
        database: Database of the ledger.
        unit_bytes_max: Maximum size of a task, in bytes of encoded events.
        ranges_here_max: Maximum number of entries of audit records that are compared in this
            process. Larger numbers are compared in tasks.
    """

    runner: Runner
    storage: Storage
    database: Database
    unit_bytes_max: int
    ranges_here_max: int = _RANGES_HERE_MAX

    def prove(self, frontiers: Sequence[Frontier], cut_offsets: AuditOffsets) -> list[Proof]:
        """Verify that no event is missing from hourly buckets, by comparison with audit records.

        If the totals of a bucket match, its rows are not read. Otherwise, rows and audit records
        are compared for each byte range of a log file. Rows without an audit record are stored in a
        file, because a later audit record may cover them. Missing events do not raise an exception;
        they are listed in the proof.

        Args:
            frontiers: The hours of the buckets, one per event type. Staged rows (events copied from
                Kafka) must already be assigned to the buckets.
            cut_offsets: End offsets (exclusive), by site, of the audit records to compare.

        Returns:
            One proof per bucket, in the order of `frontiers`. Its `findings` are empty if no event
            is missing.

        Raises:
            Unreadable: A staged file is missing or damaged and must be staged again first.
        """
        sums = self._read_sums(frontiers, cut_offsets)
        proofs = [prove_by_sums(listed, promised) for listed, promised in sums]
        slow = {at: frontiers[at] for at, proof in enumerate(proofs) if proof is None}
        joined = self._by_join(slow, cut_offsets) if slow else {}
        return [
            proof or dataclasses.replace(joined[at], listed=sum(listed.values(), EventTotals()))
            for at, (proof, (listed, _)) in enumerate(zip(proofs, sums, strict=True))
        ]

    def prove_by_sums(
        self, frontiers: Sequence[Frontier], cut_offsets: AuditOffsets
    ) -> list[Proof | None]:
        """Verify hourly buckets by comparing totals in the ledger, without reading their rows.

        Args:
            frontiers: The hours of the buckets; several hours of a type are allowed. Staged rows
                (events copied from Kafka) must already be assigned to the buckets.
            cut_offsets: End offsets (exclusive), by site, of the audit records to compare.

        Returns:
            One proof per bucket, in the order of `frontiers`; None if the totals differ or cannot
            be compared, so that `prove` must compare each byte range.

        Raises:
            Unreadable: A staged file is missing or damaged and must be staged again first.
        """
        return [
            prove_by_sums(listed, promised)
            for listed, promised in self._read_sums(frontiers, cut_offsets)
        ]

    def _read_sums(
        self, frontiers: Sequence[Frontier], cut_offsets: AuditOffsets
    ) -> list[tuple[Mapping[int, EventTotals], Mapping[int, EventTotals]]]:
        totals = read_proof_totals(self.database, frontiers, cut_offsets)
        return add_partial_groups(totals, self.storage, frontiers, cut_offsets)

    def _by_join(self, frontiers: Mapping[int, Frontier], below: AuditOffsets) -> dict[int, Proof]:
        rows = self._rows_items(frontiers)
        verdict = self._compare_all_ranges(rows, frontiers, below)
        older = self._settled_promises(frontiers, verdict, below)
        unaudited = anti_join(verdict.unaudited, older, KEY)
        unmet, passed_over = _split_settled(verdict.unmet, older)
        found = RangeComparison(verdict, unaudited, unmet, passed_over)
        files = self._keep_unaudited(frontiers, rows, unaudited)
        settled = _settled_ranges(verdict.unaudited, older, passed_over)
        checked = check_late_rows(
            self.runner, self.storage, self.database, frontiers, settled, self.unit_bytes_max
        )
        return {
            at: build_proof(at, f, found, files.get(at), checked.get(at, LateRowsCheck()))
            for at, f in frontiers.items()
        }

    def _rows_items(self, frontiers: Mapping[int, Frontier]) -> list[StagedRowsItem]:
        groups = read_assigned_groups(self.database, list(frontiers.values()))
        earlier = defaultdict[str, list[str]](list)
        for file in read_unaudited_files(self.database):
            earlier[file.event_type].append(file.path)
        listed = {at: (f, g) for (at, f), g in zip(frontiers.items(), groups, strict=True)}
        return plan_row_items(
            listed, {at: earlier[f.event_type] for at, f in frontiers.items()}, self.unit_bytes_max
        )

    def _compare_all_ranges(
        self, rows: Sequence[StagedRowsItem], frontiers: Mapping[int, Frontier], below: AuditOffsets
    ) -> RangeCounts:
        # Compare all ranges in the driver, or in tasks if there are many.
        groups = [
            g
            for of in find_counted_audit_groups(self.database, list(frontiers.values()), below)
            for g in of
        ]
        items: list[StagedRowsItem | AuditFilesItem] = [*rows, *plan_promise_items(groups)]
        promise_filter = PromiseFilter.for_frontiers(frontiers, below)
        merge = functools.partial(
            _compare_parts,
            hours=[
                frontiers[at].hour.start_s if at in frontiers else 0
                for at in range(max(frontiers) + 1)
            ],
        )
        parts = 1 + sum(g.rows for g in groups) // self.ranges_here_max
        if parts == 1:
            return merge(
                self.runner.map(
                    functools.partial(
                        read_item, storage=self.storage, promise_filter=promise_filter
                    ),
                    items,
                )
            )
        work = functools.partial(
            read_item_by_part, storage=self.storage, promise_filter=promise_filter, part_count=parts
        )
        return merge_counts(self.runner.gather(work, items, merge, parts))

    def _settled_promises(
        self, frontiers: Mapping[int, Frontier], verdict: RangeCounts, below: AuditOffsets
    ) -> pa.Table:
        # Return earlier settled promises of late ranges that are unmet or unaudited, schema OLDER.
        # Each file is read once for all frontiers.
        keys = distinct_values(
            pa.concat_tables([_ranges_of_unmet(verdict.unmet), verdict.unaudited.select(KEY)]), KEY
        )
        own_s = np.array(
            [
                frontiers[at].hour.start_s if at in frontiers else 0
                for at in range(max(frontiers) + 1)
            ]
        )
        late = keys.filter(
            pa.array(
                keys.column("hour").to_numpy() < own_s[keys.column("frontier_index").to_numpy()]
            )
        )
        by_path = defaultdict[AuditPath, str](str)  # a type that needs the file
        for at, f in frontiers.items():
            if len(own := late.filter(pc.equal(late.column("frontier_index"), at))):
                for g in find_audit_groups_between(
                    self.database, f.event_type, origin_hours(own), NO_AUDIT_OFFSETS, f.settled_next
                ):
                    by_path[AuditPath(g.path, g.site)] = f.event_type
        work = functools.partial(
            read_settled_promises,
            storage=self.storage,
            promise_filter=PromiseFilter.for_frontiers(frontiers, below),
            ranges=late,
        )
        try:
            found = self.runner.map(work, plan_file_items(by_path))
        except Unreadable as error:  # only this check needs settled promises
            asking = next(
                (event_type for file, event_type in by_path.items() if file.path == error.path),
                None,
            )
            raise Unreadable(error.path, error.why, asking) from error
        return pa.concat_tables(
            [OLDER.empty_table(), *(rows.select(OLDER.names) for rows in found)]
        )

    def _keep_unaudited(
        self,
        frontiers: Mapping[int, Frontier],
        items: Sequence[StagedRowsItem],
        unaudited: pa.Table,
    ) -> dict[int, UnauditedFile]:
        total = pc.sum(unaudited.column("rows")).as_py() or 0
        if total > UNAUDITED_ROWS_MAX:
            _LOG.error(
                "%d listed rows have no audit record. Only %d are kept for audit records that "
                "arrive later, so the hours of the others would time out. Check whether records "
                "of the audit topic are missing",
                total,
                UNAUDITED_ROWS_MAX,
            )
            unaudited = unaudited.filter(
                pc.less_equal(pc.cumulative_sum(unaudited.column("rows")), UNAUDITED_ROWS_MAX)
            )
        if not len(unaudited):
            return {}
        concerned = set(unaudited.column("frontier_index").to_pylist())
        work = functools.partial(read_new_unaudited, storage=self.storage, ranges=unaudited)
        rows = pa.concat_tables(
            self.runner.map(work, [i for i in items if concerned & set(i.frontier_indexes)])
        )
        epoch = self.database.epoch(CLOSER)

        def write(at: int) -> UnauditedFile:
            return write_unaudited(
                self.storage,
                epoch,
                frontiers[at],
                rows.filter(pc.equal(rows.column("frontier_index"), at)),
            )

        with ThreadPoolExecutor(_WRITERS) as pool:
            return dict(zip(sorted(concerned), pool.map(write, sorted(concerned)), strict=True))


class RangeComparison(NamedTuple):
    """Result of comparing several buckets with audit records, with repeated records kept apart.

    A promise is one entry of an audit record. It states how many events a byte range of a log file
    contains for one event type and hour. If an audit record is sent again after its promises were
    compared with an earlier bucket, its promises are called repeated.

    Attributes:
        verdict: Comparison of the rows with all promises, including repeated ones.
        unaudited: Byte ranges that have rows but neither a new nor a repeated promise. The columns
            are `frontier_index` (bucket index), `hour`, `range_id` and `rows` (number of event
            ids).
        unmet: New promises that the rows do not match: events are missing or differ.
        passed_over: Repeated promises that the rows do not match. This is not an error, because an
            earlier bucket has accounted for their events.
    """

    verdict: RangeCounts
    unaudited: pa.Table
    unmet: Sequence[UnmetPromise]
    passed_over: Sequence[UnmetPromise]


def prove_by_sums(
    listed: Mapping[int, EventTotals], promised: Mapping[int, EventTotals]
) -> Proof | None:
    """Verify that an hourly bucket is complete by comparing totals, without reading its rows.

    The rows and the audit records must have the same number of events and the same digest of event
    ids and byte ranges. If the audit records have checksums, the sums of the value hashes must also
    be equal. The function performs no I/O.

    Args:
        listed: Totals of the bucket's rows, by hour of event time (Unix seconds).
        promised: Totals of the audit records, by hour of event time (Unix seconds).

    Returns:
        The proof. None if the totals differ or cannot be compared; each byte range must then be
        compared.
    """
    if not listed and not promised:
        return Proof(method="empty", audit_records=0, promised=0, unaudited=0)
    rows, promises = sum(listed.values(), EventTotals()), sum(promised.values(), EventTotals())
    if (rows.events, rows.digest) != (promises.events, promises.digest):
        return None
    is_checked = promises.unchecked < promises.events  # without any checksum, only ids are compared
    if is_checked and (rows.unchecked or promises.unchecked or rows.values != promises.values):
        return None
    books = tuple(OriginHourTotals(hour, of.events, 0) for hour, of in sorted(promised.items()))
    checked = promises.events if is_checked else 0
    return Proof(
        listed=rows,
        method="sums",
        audit_records=promises.records,
        promised=promises.events,
        unaudited=0,
        checked=checked,
        books=books,
    )


def add_partial_groups(
    sums: Sequence[ProofTotals],
    storage: Storage,
    frontiers: Sequence[Frontier],
    cut_offsets: AuditOffsets,
) -> list[tuple[Mapping[int, EventTotals], Mapping[int, EventTotals]]]:
    """Complete the ledger's totals of audit records with records from partly included groups.

    A group contains the audit records for one event type and hour in one staged file. The ledger
    (the ETL's state database) stores one total per group. If only some records of a group must be
    compared with a bucket, `read_proof_totals` omits the group. This function reads the files of
    such groups and adds the totals of these records.

    Args:
        sums: Totals of each bucket from `read_proof_totals`.
        storage: Storage with the staged files.
        frontiers: Event type and hour of each bucket, in the order of `sums`.
        cut_offsets: End offsets (exclusive), by site, of the audit records to compare.

    Returns:
        For each bucket, totals of the staged rows and of the audit records, both by hour of event
        time (Unix seconds).

    Raises:
        Unreadable: A staged file is missing or damaged and must be staged again.
    """
    wanted = defaultdict[AuditPath, set[tuple[int, int]]](set)  # → (frontier index, hour)
    for at, of in enumerate(sums):
        for g in of.partially_counted:
            wanted[AuditPath(g.path, g.site)].add((at, g.hour_s))
    promised = [defaultdict(EventTotals, of.promised) for of in sums]
    for (path, site), hours in wanted.items():
        counting = PromiseFilter.for_frontiers(
            {at: frontiers[at] for at, _ in hours}, cut_offsets
        ).select_counting(read_promises(storage, path), site)
        for p in counting.select(OLDER.names).to_pylist():
            if (p["frontier_index"], p["hour"]) in hours:
                digest = p["sum"] + RANGE_WEIGHT * p["count"] * int.from_bytes(p["range_id"], "big")
                checksum, unchecked = p["checksum"] or 0, p["count"] if p["checksum"] is None else 0
                promised[p["frontier_index"]][p["hour"]] += EventTotals(
                    1, p["count"], to_unsigned(digest), checksum, unchecked
                )
    return [(of.listed, found) for of, found in zip(sums, promised, strict=True)]


def build_proof(
    index: int,
    frontier: Frontier,
    comparison: RangeComparison,
    unaudited_file: UnauditedFile | None,
    late_rows: LateRowsCheck,
) -> Proof:
    """Create the proof of one hourly bucket from the comparison of several buckets.

    The proof states whether the bucket contains every event that audit records report. The function
    performs no I/O.

    Args:
        index: Index of the bucket in `comparison`, starting at 0.
        frontier: Event type and hour of the bucket.
        comparison: Comparison of the staged rows of several buckets with audit records.
        unaudited_file: File with the bucket's rows that have no audit record; None if there are no
            such rows.
        late_rows: Result of checking the bucket's late rows (rows of earlier hours).

    Returns:
        The proof. The bucket is complete if `findings` is empty.
    """
    unmet = [u for u in comparison.unmet if u.frontier_index == index]
    unnamed = comparison.verdict.unnamed.get(index, 0)
    unaudited = Counter[int]()
    rows = comparison.unaudited.filter(
        pc.equal(comparison.unaudited.column("frontier_index"), index)
    )
    for row in rows.select(["hour", "rows"]).to_pylist():
        unaudited[row["hour"]] += row["rows"]
    promised = {
        hour: count for (one, hour), count in comparison.verdict.promised.items() if one == index
    }
    records = sum(count for (one, _), count in comparison.verdict.records.items() if one == index)
    for u in comparison.passed_over:
        if u.frontier_index == index:
            promised[u.hour] -= u.promised
            records -= 1
    hours = sorted({h for h, n in promised.items() if n} | set(unaudited))
    return Proof(
        method="join",
        audit_records=records,
        promised=sum(promised.values()),
        unaudited=sum(unaudited.values()),
        checked=sum(
            count for (one, _), count in comparison.verdict.checked.items() if one == index
        ),
        findings=limit_findings(
            [_describe_unmet(u, frontier.hour.length_s) for u in unmet], unnamed
        ),
        lacks=to_incomplete_ranges([u.range_id for u in unmet], unnamed),
        books=tuple(OriginHourTotals(h, promised.get(h, 0), unaudited[h]) for h in hours),
        unaudited_file=unaudited_file,
        second_readings=late_rows.second_readings,
        unknown=late_rows.unknown,
    )


def _compare_parts(parts: Sequence[RangeEvidence], hours: Sequence[int]) -> RangeCounts:
    return compare_ranges(
        [p.row_counts for p in parts], [p.promised for p in parts], hours, FINDINGS_MAX
    )


def _ranges_of_unmet(unmet: Sequence[UnmetPromise]) -> pa.Table:
    return pa.Table.from_pylist([u._asdict() for u in unmet], schema=KEYS)


def _settled_ranges(
    unaudited: pa.Table, older: pa.Table, passed_over: Sequence[UnmetPromise]
) -> pa.Table:
    return distinct_values(
        pa.concat_tables(
            [semi_join(unaudited, older, KEY).select(KEY), _ranges_of_unmet(passed_over)]
        ),
        KEY,
    )


def _split_settled(
    unmet: Sequence[UnmetPromise], older: pa.Table
) -> tuple[list[UnmetPromise], list[UnmetPromise]]:
    # Split unmet promises into those that earlier promises do not settle and those that they do. A
    # promise with the same ids and another checksum is not settled.
    settled = defaultdict[tuple[Any, ...], set[int | None]](set)
    for *content, checksum in (tuple(promise.values()) for promise in older.to_pylist()):
        settled[tuple(content)].add(checksum)

    def is_settled(u: UnmetPromise) -> bool:
        known = settled.get(u[:5], set())
        return bool(known) and (u.checksum is None or bool(known & {None, u.checksum}))

    passed_over = [u for u in unmet if is_settled(u)]
    return [u for u in unmet if not is_settled(u)], passed_over


def _describe_unmet(u: UnmetPromise, length_s: int) -> str:
    others = ", but others" if u.found == u.promised else ""
    if u.same_ids:
        others = (
            ", but values differ: a record changed after the delivery service had computed "
            "its checksum"
        )
    return (
        f"range {u.range_id.hex()} ({u.origin}): {u.promised} events of "
        f"{Hour(u.hour, length_s)} promised, {u.found} found{others}"
    )


def to_incomplete_ranges(ranges: Sequence[bytes], omitted_count: int) -> IncompleteRanges:
    """Create the list of incomplete byte ranges for a bucket's manifest.

    Args:
        ranges: Ids of incomplete byte ranges.
        omitted_count: Number of additional incomplete ranges that are not in `ranges`.

    Returns:
        The first 20 ids in hex, and whether there are more incomplete ranges.
    """
    return IncompleteRanges(
        tuple(r.hex() for r in ranges[:FINDINGS_MAX]), bool(ranges[FINDINGS_MAX:] or omitted_count)
    )


def limit_findings(findings: Sequence[str], omitted_count: int) -> tuple[str, ...]:
    """Truncate the human-readable findings of a proof to the first 20.

    Args:
        findings: Findings, one per byte range.
        omitted_count: Number of additional byte ranges that are not in `findings`.

    Returns:
        The first 20 findings. If there are more, or if `omitted_count` is not 0, the last element
        is "and N more ranges".
    """
    more = len(findings[FINDINGS_MAX:]) + omitted_count
    return (*findings[:FINDINGS_MAX], f"and {more} more ranges") if more else tuple(findings)
