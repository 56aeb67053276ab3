"""What a trace reads of a real ledger, of staged files and of buckets' containers; and that a lost
one costs its step alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.support import tracing
from tests.support.containers import append_all
from tests.support.ledger_life import FIRST, LENGTH_S, Life
from tests.support.memory_storage import MemoryStorage

from hourmark.avro.framing import event_schema, framing_header
from hourmark.config.groups import EtlSettings, StorageSettings
from hourmark.config.loading import Config
from hourmark.kafka.clients import Partition
from hourmark.records.event_id import EventId, LineIds
from hourmark.records.hours import Hour
from hourmark.records.manifest import Manifest
from hourmark.records.ranges import RangeId
from hourmark.records.record_key import RecordKey
from hourmark_etl.buckets.avro_container import ContainerWriter
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.maintenance.existing import open_existing_ledger
from hourmark_etl.operators.tracing.results import ByEventId, ByFilePosition, ByRangePosition
from hourmark_etl.operators.tracing.storage_search import StorageSearch

pytestmark = pytest.mark.slow

RANGE = RangeId(b"a range.")
FILE = "b" * 32
SCHEMA = event_schema("click", [])
COUNT = 200
IDS = [LineIds("a" * 32, FILE, 0).make(FIRST.start_s * 1000 + n, n, b"line") for n in range(COUNT)]


def datum(event_id: EventId, position: int) -> bytes:
    return tracing.datum(tracing.event(event_id) | {"position": position})


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    """200 events of one range in two batches; two others beside them."""
    made = Life(MemoryStorage(), f"sqlite:///{tmp_path}/ledger.sqlite")
    log = made.topics.logs["events.click"]
    for part in (range(100), range(100, COUNT)):
        log += [
            (RecordKey(IDS[n], RANGE).encode(), framing_header(1) + datum(IDS[n], n)) for n in part
        ]
        made.stage()
    yield made
    made.database.close()


@pytest.fixture
def kept(life: Life) -> StorageSearch:
    return StorageSearch(lambda: life.database, life.storage, LENGTH_S, lambda _: None)


def close(life: Life, ids: Sequence[EventId] = IDS) -> None:
    """The hour, in a bucket whose one file has small blocks."""
    life.close("click")
    with life.storage.create(f"{FIRST.bucket_path('click')}/part-00000.avro") as file:
        writer = ContainerWriter(file, json.dumps(SCHEMA), block_bytes=1000)
        append_all(writer, [datum(event_id, IDS.index(event_id)) for event_id in ids])
        writer.close()


def position(number: int) -> ByRangePosition:
    return ByRangePosition(RANGE, FILE, 0, number)


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 99, 100, COUNT - 1])
def test_a_staged_row_is_found_by_id_and_by_position(kept: StorageSearch, number: int) -> None:
    by_id, by_position = (
        kept.find_staged_row("click", FIRST, sought)
        for sought in (ByEventId(IDS[number]), position(number))
    )
    assert by_id.value == by_position.value and by_id.is_complete and by_position.is_complete
    assert by_id.value is not None
    assert (by_id.value.event_id, by_id.value.range_id, by_id.value.offset) == (
        IDS[number],
        RANGE,
        number,
    )
    assert (by_id.value.hour, by_id.value.listed) == (FIRST, None)


def test_a_row_says_for_which_bucket_it_is_listed(life: Life, kept: StorageSearch) -> None:
    life.freeze("click")
    found = kept.find_staged_row("click", FIRST, ByEventId(IDS[0])).value
    assert found is not None and found.listed == FIRST


def test_what_is_not_staged_is_not_found(kept: StorageSearch) -> None:
    other = LineIds("a" * 32, FILE, 1).make(FIRST.start_s * 1000 + 50, 50, b"line")
    assert kept.find_staged_row("click", FIRST, ByEventId(other)).value is None
    assert kept.find_staged_row("click", FIRST, position(COUNT)).value is None
    assert (
        kept.find_staged_row("click", FIRST, ByRangePosition(RangeId(bytes(8)), FILE, 0, 1)).value
        is None
    )
    assert kept.find_staged_row("view", FIRST, ByEventId(IDS[0])).value is None
    assert kept.find_bucket_record("click", FIRST, ByEventId(IDS[0])).value is None


@pytest.mark.parametrize("number", [0, 1, 77, COUNT - 1])
def test_a_record_of_a_bucket_is_found_with_file_and_row(
    life: Life, kept: StorageSearch, number: int
) -> None:
    close(life)
    for sought in (ByEventId(IDS[number]), position(number)):
        found = kept.find_bucket_record("click", FIRST, sought).value
        assert found is not None
        assert (found.file, found.row) == (f"{FIRST.bucket_path('click')}/part-00000.avro", number)
        assert (found.hour, found.grade, found.event_id) == (FIRST, "proved", IDS[number])


@pytest.mark.parametrize(
    ("place", "there"),
    [
        (ByFilePosition("web", "/log", None, 7), True),
        (ByFilePosition("a" * 32, FILE, 0, 7), True),
        (ByFilePosition("db", "/log", None, 7), False),
        (ByFilePosition("web", "/other", None, 7), False),
        (ByFilePosition("web", "/log", 1, 7), False),
    ],
)
def test_a_record_of_a_bucket_is_found_by_the_name_of_its_file(
    life: Life, kept: StorageSearch, place: ByFilePosition, there: bool
) -> None:
    close(life)
    found = kept.find_bucket_record("click", FIRST, place).value
    assert (found is not None and found.row == 7) == there


def test_reports_of_a_host_are_known_by_its_name_and_of_no_other(
    life: Life, kept: StorageSearch
) -> None:
    life.report("web")
    life.stage()
    reports = kept.tailer_reports("web").value
    assert reports is not None and [(r.host_name, r.source) for r in reports] == [("web", "app")]
    assert kept.tailer_reports("db").value is None


def test_a_file_that_is_not_sorted_hides_nothing(life: Life, kept: StorageSearch) -> None:
    close(life, [*IDS[100:], *IDS[:100]])
    rows = [
        found.row
        for event_id in IDS
        if (found := kept.find_bucket_record("click", FIRST, ByEventId(event_id)).value) is not None
    ]
    assert rows == [*range(100, 200), *range(100)]


def test_a_bucket_that_has_it_as_late_is_found(life: Life, kept: StorageSearch) -> None:
    close(life)
    late = LineIds("a" * 32, FILE, 0).make(FIRST.start_s * 1000 + 500, 900, b"late")
    life.take_in("click", FIRST.next(), 1)
    told = life.close("click")
    later = told.model_copy(update={"late": {str(FIRST): 1}})
    folder = FIRST.next().bucket_path("click")
    with life.storage.create(f"{folder}/late-00000.avro") as file:
        writer = ContainerWriter(file, json.dumps(SCHEMA))
        append_all(writer, [datum(late, 900)])
        writer.close()
    rewrite(
        life,
        later.model_copy(
            update={"files": [told.files[0].model_copy(update={"name": "late-00000.avro"})]}
        ),
    )
    found = kept.find_bucket_record("click", FIRST, ByEventId(late)).value
    assert found is not None and (found.hour, found.file) == (
        FIRST.next(),
        f"{folder}/late-00000.avro",
    )


def rewrite(life: Life, told: Manifest) -> None:
    """The ledger's copy of a manifest."""
    from hourmark_etl.ledger import tables
    from hourmark_etl.ledger.bucket_rows import insert_closed_buckets
    from hourmark_etl.ledger.database import delete_rows

    with life.database.transaction(life.closer) as connection:
        hour = Hour.parse(told.hour, LENGTH_S)
        delete_rows(
            connection,
            tables.buckets,
            ["type", "hour"],
            [{"type": told.type, "hour": hour.start_s}],
        )
        insert_closed_buckets(connection, [(hour, told)])


def test_a_damaged_file_is_named_and_not_taken_for_one_without_the_event(
    life: Life, kept: StorageSearch
) -> None:
    life.close("click")
    life.storage.write_new(f"{FIRST.bucket_path('click')}/part-00000.avro", b"no container")
    found = kept.find_bucket_record("click", FIRST, ByEventId(IDS[0]))
    assert found.error is not None and "hourmark bucket verify click" in found.error


def test_standing_and_positions_are_the_ledgers(life: Life, kept: StorageSearch) -> None:
    standing = kept.oldest_open_hour("click").value
    assert standing is not None and standing.hour == FIRST
    assert kept.oldest_open_hour("other").value is None
    assert kept.staging_offset(Partition("events.click", 0)).value == COUNT
    assert kept.staging_offset(Partition("events.click", 1)).value is None


def test_without_a_ledger_the_hours_own_bucket_is_read_and_later_ones_are_said_to_be_missing(
    life: Life, tmp_path: Path
) -> None:
    close(life)
    gone = Config(
        etl=EtlSettings(ledger=f"sqlite:///{tmp_path}/none.sqlite"),
        storage=StorageSettings(root=f"file://{tmp_path}/root"),
    )

    def lost() -> Database:
        return open_existing_ledger(gone)

    kept = StorageSearch(lost, life.storage, LENGTH_S, lambda _: None)
    found = kept.find_bucket_record("click", FIRST, ByEventId(IDS[5]))
    assert found.value is not None and found.value.row == 5
    absent = kept.find_bucket_record("click", FIRST.next(), ByEventId(IDS[5]))
    assert (absent.value, absent.is_complete, absent.error) == (
        None,
        False,
        None,
    ) and "later buckets, which may have it as a late event, were not searched" in absent.searched
    for step in (
        kept.oldest_open_hour("click"),
        kept.find_staged_row("click", FIRST, ByEventId(IDS[5])),
        kept.staging_offset(Partition("events.click", 0)),
    ):
        assert step.error is not None and "no ledger exists at" in step.error
    kept.close()
