"""Units hold every listed row once, duplicates of an id together, within their bound; reading them
fetches little.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.records import kafka_table, stage_plan

from hourmark.avro.framing import framing_header
from hourmark_etl.closing.units import Listing, OversizedUnit, Unit, plan_units, read_unit
from hourmark_etl.errors import Unreadable
from hourmark_etl.model import StagedGroup
from hourmark_etl.staging import files
from hourmark_etl.staging.files import IdRange
from hourmark_etl.staging.stage import stage_table
from hourmark_etl.storage import LocalDisk

HOUR_MS = 1_800_000_000_000
TYPES = {f"edge.events.t{n}": f"t{n}" for n in range(4)}


def stage(root: Path, rows: list[tuple[str, bytes, int]]) -> tuple[StagedGroup, ...]:
    """Events of (type, id, bytes of datum), one file."""
    plan = stage_plan(types=TYPES)
    table = kafka_table(
        (i + b"rangerng", framing_header(1) + bytes(size), f"edge.events.{t}", 0, n)
        for n, (t, i, size) in enumerate(rows)
    )
    return stage_table(table, (), plan, LocalDisk(root)).groups


def an_id(time_ms: int, rest: int) -> bytes:
    return time_ms.to_bytes(6, "big") + b"\x80" + random.Random(rest).randbytes(9)


events = st.lists(
    st.tuples(
        st.sampled_from(sorted(TYPES.values())),
        st.builds(an_id, st.integers(HOUR_MS, HOUR_MS + 9_000_000), st.integers(0, 5)),
        st.integers(16, 200),
    ),
    max_size=60,
)


@pytest.mark.slow
@given(st.lists(events, min_size=1, max_size=4), st.integers(50, 5_000), st.integers(1, 7))
@settings(max_examples=60, deadline=None)
def test_every_row_is_read_in_one_unit_and_equal_ids_in_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[tuple[str, bytes, int]]],
    unit_bytes_max: int,
    rows_in_group: int,
) -> None:
    root = tmp_path_factory.mktemp("rows")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "ROWS_IN_GROUP", rows_in_group)
        groups = [g for rows in batches if rows for g in stage(root, rows)]
    listings = [
        Listing(t, HOUR_MS // 1000, tuple(g for g in groups if g.event_type == t))
        for t in TYPES.values()
    ]
    units = plan_units(listings, unit_bytes_max)
    seen: Counter[tuple[str, int, bytes, int]] = Counter()
    unit_of: dict[tuple[str, bytes], Unit] = {}
    for unit in units:
        assert (
            len(unit.listings) == 1 or sum(x.datum_bytes for x in unit.listings) <= unit_bytes_max
        )
        table = read_unit(unit, LocalDisk(root), ["event_id", "datum"]).table
        assert table.column_names == [
            "listing",
            "hour",
            "digest",
            "value_hash",
            "event_id",
            "datum",
        ]
        for at, hour, _, _, event_id, datum in zip(
            *(c.to_pylist() for c in table.columns), strict=True
        ):
            event_type = unit.listings[at].event_type
            seen[event_type, hour, event_id, len(datum)] += 1
            assert unit_of.setdefault((event_type, event_id), unit) is unit
    told = [row for rows in batches for row in rows]
    assert seen == Counter(
        (t, int.from_bytes(i[:6], "big") // 3_600_000 * 3600, i, size) for t, i, size in told
    )


def test_a_large_listing_is_cut_into_slots_of_about_equal_bytes(tmp_path: Path) -> None:
    rows = [("t0", an_id(HOUR_MS + n * 300, n), 100) for n in range(10_000)]
    groups = stage(tmp_path, rows[:5_000]) + stage(tmp_path, rows[5_000:])
    units = plan_units([Listing("t0", HOUR_MS // 1000, groups)], 100_000)
    counts = [read_unit(u, LocalDisk(tmp_path), ["event_id"]).table.num_rows for u in units]
    assert len(units) == 10 and sum(counts) == 10_000
    assert max(counts) < 1_100


def test_a_slot_reads_only_row_groups_that_may_hold_its_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ROWS_IN_GROUP", 100)
    groups = stage(tmp_path, [("t0", an_id(HOUR_MS + n * 300, n), 100) for n in range(10_000)])
    units = plan_units([Listing("t0", HOUR_MS // 1000, groups)], 100_000)
    fetched: list[list[int]] = []
    real = pq.ParquetFile.read_row_groups

    def recorded(self: pq.ParquetFile, groups: list[int], **options: list[str]) -> pa.Table:
        fetched.append(groups)
        return real(self, groups, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", recorded)
    for unit in units:
        read_unit(unit, LocalDisk(tmp_path), ["datum"])
    assert max(len(g) for g in fetched) <= 12 and sum(len(g) for g in fetched) <= 100 + 10


@pytest.mark.parametrize("damage", ["missing", "cut", "flipped", "short"])
def test_a_staged_file_that_cannot_be_read_is_named(tmp_path: Path, damage: str) -> None:
    (group,) = stage(tmp_path, [("t0", an_id(HOUR_MS, n), 500) for n in range(100)])
    file = tmp_path / group.path
    content = file.read_bytes()
    at = content.index(b"rangerng")
    (other,) = stage(tmp_path, [("t0", an_id(HOUR_MS, 1), 10)])
    damaged = {
        "cut": content[: len(content) // 2],
        "flipped": content[:at] + b"X" + content[at + 1 :],
        "short": (tmp_path / other.path).read_bytes(),
    }
    file.unlink()
    if damage in damaged:
        file.write_bytes(damaged[damage])
    with pytest.raises(Unreadable, match=group.path):
        read_unit(
            Unit((Listing("t0", HOUR_MS // 1000, (group,)),)),
            LocalDisk(tmp_path),
            ["event_id", "range_id"],
        )


def test_a_slot_of_many_events_of_one_moment_is_read_in_parts(tmp_path: Path) -> None:
    """Spread over the hour are few; a plan that takes all for evenly spread puts the others into
    one slot.
    """
    spread = [("t0", an_id(HOUR_MS + n * 36_000, n), 100) for n in range(100)]
    burst = [("t0", an_id(HOUR_MS + 1_800_000, n), 100) for n in range(100, 4_000)]
    groups = stage(tmp_path, [*spread[::2], *burst[::2]]) + stage(
        tmp_path, [*spread[1::2], *burst[1::2]]
    )
    counts: list[int] = []

    def read(unit: Unit) -> None:
        try:
            counts.append(
                read_unit(unit, LocalDisk(tmp_path), ["event_id", "datum"], 40_000).table.num_rows
            )
        except OversizedUnit as overfull:
            for part in overfull.parts:
                read(part)

    planned = plan_units([Listing("t0", HOUR_MS // 1000, groups)], 20_000)
    for unit in planned:
        read(unit)
    assert sum(counts) == 4_000 and max(counts) <= 400 < len(spread) + len(burst)
    same = stage(tmp_path, [("t1", an_id(HOUR_MS, 1), 100)] * 1_000)
    slot = Unit((Listing("t1", HOUR_MS // 1000, same),), IdRange(0))
    assert (
        read_unit(slot, LocalDisk(tmp_path), ["event_id", "datum"], 40_000).table.num_rows == 1_000
    ), "they are one event"
