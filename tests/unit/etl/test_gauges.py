"""What is late, how far behind sources are, which buckets are overdue: by the ledger's words alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tests.support.rules import put_rules

from hourmark.config import Config, Etl
from hourmark.dead_letters import TYPE as DEAD_LETTERS
from hourmark.event_types import EventType, Source
from hourmark.hours import Hour
from hourmark_etl.ledger import frontiers as ledger
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.overview import Fixed, fixed_hours
from hourmark_etl.model import (
    AUDIT,
    EVENTS,
    AuditGroup,
    Frontier,
    Reporter,
    Seal,
    StagedBatch,
    StagedFile,
    StagedGroup,
    State,
)
from hourmark_etl.telemetry.gauges import LagWindow, gauges_of, open_ages_s, slowest, staged_of, watermarks_ms
from hourmark_etl.telemetry.metrics import OLDEST_SHOWN

HOUR = Hour(1_800_000_000, 3600)
END = HOUR.end_ms
SERVICE = Reporter(
    host_id="s" * 32,
    source="api",
    host_name="svc",
    kind="service",
    incarnation="one",
    sequence=0,
    received_at_ms=END,
    caught_up_at_ms=END + 1,
    pending_bytes=0,
    lost_bytes=0,
    goodbye=False,
    heard_at_ms=END,
)
TAILER = dataclasses.replace(
    SERVICE, host_id="t" * 32, source="app", host_name="web", kind="tailer", pending_bytes=7, lost_bytes=3
)


def frontier(event_type: str = "click", hour: Hour = HOUR, sources: tuple[str, ...] = ("app",), **changes: object) -> Frontier:
    made = Frontier(
        event_type=event_type,
        first_hour=HOUR,
        hour=hour,
        state=State.OPEN,
        sources=frozenset(sources),
        settled_next=0,
        seal=None,
        alarm=(),
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def batch(*groups: tuple[str, int, int]) -> StagedBatch:
    """Of groups (type, hour's start, rows)."""
    staged = tuple(
        StagedGroup(
            path="f",
            event_type=t,
            hour_s=hour_s,
            rows=rows,
            datum_bytes=10 * rows,
            low64_sum=0,
            schema_ids=(1,),
            first_row=0,
            first_id=bytes(16),
            last_id=bytes(16),
        )
        for t, hour_s, rows in groups
    )
    files = (StagedFile(path="f", kind=EVENTS, rows=1, spans=()), StagedFile(path="a", kind=AUDIT, rows=1, spans=()))
    return StagedBatch(
        folder="b",
        starts=(),
        ends=(),
        files=files,
        groups=staged,
        audit_groups=(
            AuditGroup(path="a", event_type="click", hour_s=0, rows=1, first_offset=0, last_offset=0, promised=12, low64_sum=0),
        ),
        reports=(),
    )


def test_events_of_the_open_hour_and_later_ones_are_timely() -> None:
    staged = staged_of(
        batch(("click", HOUR.start_s, 5), ("click", HOUR.end_s, 2)), {"click": Fixed(HOUR.start_s, HOUR.start_s)}, 3600, 1.0, END
    )
    assert (staged.timely, staged.late, staged.late_seconds, staged.bytes, staged.promised) == (7, 0, 0.0, 70, 12)
    assert (staged.event_files, staged.audit_files) == (1, 1)


def test_events_of_closed_hours_are_late_by_the_time_since_the_end_of_their_hour() -> None:
    closed = Hour(HOUR.start_s - 3600)
    staged = staged_of(batch(("click", closed.start_s, 4)), {"click": Fixed(HOUR.start_s, HOUR.start_s)}, 3600, 1.0, END)
    assert (staged.timely, staged.late, staged.falsely_late) == (0, 4, 0)
    assert staged.late_seconds == 4 * 3600


def test_events_of_an_hour_that_is_sealed_and_not_yet_published_are_falsely_late() -> None:
    fixed = {"click": Fixed(HOUR.start_s, HOUR.end_s)}
    groups = (("click", HOUR.start_s - 3600, 2), ("click", HOUR.start_s, 4), ("click", HOUR.end_s, 1))
    staged = staged_of(batch(*groups), fixed, 3600, 1.0, END)
    assert (staged.timely, staged.late, staged.falsely_late) == (1, 6, 4)


def test_what_is_fixed_follows_the_frontier_through_its_states(tmp_path: Path) -> None:
    config = Config(etl=Etl(ledger=f"sqlite:///{tmp_path}/ledger.sqlite"))
    click = EventType(name="click", fields=[{"name": "n", "type": "long"}])
    put_rules(config, [click], [Source(name="app", types=["click"])], HOUR)
    database = Database(config.etl.ledger)
    lease = database.acquire("closer")

    def fixed() -> Fixed:
        return fixed_hours(database, 3600)["click"]

    assert fixed() == Fixed(HOUR.start_s, HOUR.start_s)
    ledger.freeze(database, lease, ledger.frontiers(database, 3600), {"click": "events.click"})
    assert fixed() == Fixed(HOUR.start_s, HOUR.end_s)
    seal = Seal(
        grade="proved", method="join", cut_at_ms=1, audit_next=0, audit_records=0, promised=0, unaudited=0, waived=(), offsets=()
    )
    ledger.seal(database, lease, {"click": [seal, seal]}, ledger.frontiers(database, 3600))
    assert fixed() == Fixed(HOUR.start_s, HOUR.end_s + 3600)
    database.close()


def test_events_of_a_type_that_the_ledger_does_not_know_yet_are_timely() -> None:
    assert staged_of(batch(("new", HOUR.start_s, 4)), {}, 3600, 1.0, END).timely == 4


def test_a_type_is_behind_by_its_slowest_source() -> None:
    slow = dataclasses.replace(TAILER, host_id="u" * 32, caught_up_at_ms=HOUR.start_s * 1000 + 5)
    other = dataclasses.replace(TAILER, host_id="v" * 32, source="other", caught_up_at_ms=HOUR.start_s * 1000 + 9)
    types = [frontier(), frontier("view", sources=("other",)), frontier(DEAD_LETTERS, sources=("app", "other"))]
    found = watermarks_ms(types, [SERVICE, TAILER, slow, other], END)
    start = HOUR.start_s * 1000
    assert found == {"click": start + 5, "view": start + 9, DEAD_LETTERS: start + 5}


def test_what_is_closed_is_behind_no_longer_whatever_was_reported() -> None:
    never = dataclasses.replace(TAILER, caught_up_at_ms=None)
    assert watermarks_ms([frontier()], [SERVICE, never], END) == {"click": HOUR.start_s * 1000}
    assert watermarks_ms([frontier()], [], END) == {"click": HOUR.start_s * 1000}
    assert watermarks_ms([], [SERVICE], END) == {}


def test_the_slowest_source_is_one_that_a_type_awaits() -> None:
    never = dataclasses.replace(TAILER, host_id="u" * 32, caught_up_at_ms=None)
    other = dataclasses.replace(never, source="of no type")
    gone = dataclasses.replace(never, goodbye=True)
    slow = dataclasses.replace(TAILER, host_id="v" * 32, caught_up_at_ms=END - 9 * 3_600_000)
    assert slowest([frontier()], [SERVICE, TAILER, slow, other, gone]) == slow
    assert slowest([frontier()], [SERVICE, TAILER, slow, never]) == never
    assert slowest([frontier()], []) is None


def test_who_said_goodbye_or_was_waived_holds_no_watermark_back() -> None:
    gone = dataclasses.replace(TAILER, host_id="u" * 32, caught_up_at_ms=None, goodbye=True)
    waived = dataclasses.replace(TAILER, host_id="v" * 32, caught_up_at_ms=None, waived=True)
    assert watermarks_ms([frontier()], [SERVICE, TAILER, gone, waived], END) == {"click": END}


def test_the_oldest_hours_that_have_ended_are_shown() -> None:
    types = [frontier(f"t{n}", Hour(HOUR.start_s - 3600 * n)) for n in range(OLDEST_SHOWN + 5)]
    ages = open_ages_s(types, HOUR.start_s * 1000)
    assert len(ages) == OLDEST_SHOWN
    assert next(iter(ages.items())) == (f"t{OLDEST_SHOWN + 4}", 3600.0 * (OLDEST_SHOWN + 3))
    assert open_ages_s([frontier()], HOUR.start_s * 1000) == {}


def test_the_window_of_lags_is_five_minutes_long() -> None:
    window = LagWindow()
    assert window.add(0, [10, 20]) == (15, 20)
    assert window.add(60, [1, 1]) == (8, 20)
    assert window.add(300, [1]) == (17 / 3, 20)
    assert window.add(301, []) == (2 / 3, 1)


def test_how_things_stand_is_counted() -> None:
    waived = dataclasses.replace(TAILER, host_id="u" * 32, waived=True)
    gone = dataclasses.replace(TAILER, host_id="v" * 32, goodbye=True)
    types = [frontier(alarm=("range …",)), frontier("view", state=State.SEALED)]
    found = gauges_of(
        types,
        [SERVICE, TAILER, waived, gone],
        quarantined=1,
        buckets_in_conflict=0,
        overrides=2,
        lag_s=(3.0, 4.0),
        now_ms=END + 5000,
    )
    assert found.types == {"open": 1, "frozen": 0, "sealed": 1, "damaged": 0}
    assert found.reporters == {"live": 2, "waived": 1, "gone": 1}
    assert (found.pending_bytes, found.lost_bytes, found.types_in_alarm) == (14, 9, 1)
    assert found.oldest_open == {"click": 5.0, "view": 5.0}
    assert found.open_bucket_age == 5.0
