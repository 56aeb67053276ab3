"""Faults of the world beside the closing core: each is played as a story, with a rule taken away,
and must be found.

The same story without the planted fault keeps the promise. Random histories meet such moments too,
but not in each run.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from tests.simulation.stories import (
    Patch,
    Plant,
    Story,
    grows,
    is_found,
    played,
    polls,
    unknown_is_an_offset,
    without_epochs,
    writes,
)
from tests.support.closing import arrive, hour, until
from tests.support.rebuilding import lose_ledger, staged_files
from tests.support.restaging import retention_passes
from tests.support.simulator.truth import EDGE_PARTITIONS, FIRST_HOUR, TYPES, Broken
from tests.support.simulator.world import World
from tests.support.tiers import representative

from hourmark.errors import UsageError
from hourmark.kafka.topic_names import AUDIT, CONTROL, HOSTS, events_topic
from hourmark.records.hours import Hour
from hourmark_etl.closing.write.containers import WrittenHour
from hourmark_etl.ledger.overrides import put_overrides
from hourmark_etl.ledger.partitions.offset_gaps import EdgeCheck, put_checks
from hourmark_etl.model import from_row
from hourmark_etl.recovery.rebuilt_offsets import OffsetRebuilder, PartitionLogs
from hourmark_etl.recovery.storage_scan import BucketChain
from hourmark_etl.staging import files
from hourmark_etl.staging.verified import VerifiedFile

TOPICS = (*CONTROL, *map(events_topic, TYPES))


# Stories.


def audit_leader_away(world: World) -> None:
    """The hour has ended by staged reports; nothing else is mirrored, and nobody knows where it
    ends at the edge.
    """
    writes(world, "click", "view")
    until(world, FIRST_HOUR)
    world.producers.report(0)
    arrive(world, HOSTS)
    for p in world.producers.edge.logs:
        if p.topic != HOSTS:
            world.producers.edge.leaderless[p] = 50
    polls(world)


def marker_and_later_hours(world: World) -> None:
    """Events of two hours are staged, the first is closed, the ledger is lost, and so are the
    staged files.
    """
    writes(world, "click", "view")
    until(world, FIRST_HOUR)
    writes(world, "click", "view")
    polls(world)
    lose(world)


def promises_lost_everywhere(world: World) -> None:
    """Kafka has let go of what is staged of an open hour, the ledger is lost, and the staged files
    of its promises and events.
    """
    writes(world, "click", "view")
    polls(world, FIRST_HOUR)
    writes(world, "click", "view")
    world.pipeline.arrive()
    retention_passes(world, *TOPICS)
    lose(world)
    world.judge.given_up |= world.producers.events.keys()
    for _ in range(2):
        polls(world, Hour.containing(world.clock.now_ms()))
        with contextlib.suppress(UsageError):  # all closed
            put_overrides(world.database, 3600, "lost", "ada", world.clock.now_ms())
        polls(world)
    named(world, hour(1))


def gap_accepted_before_the_ledger_was_lost(world: World) -> None:
    """The edge deletes events and promises before they are copied, of an hour too that has begun
    when that is accepted.
    """
    polls(world, FIRST_HOUR)
    writes(world, "click")
    overtaken(world)
    polls(world, hour(1))
    put_overrides(world.database, 3600, "lost", "ada", world.clock.now_ms())
    writes(world, "click")
    overtaken(world)  # of the next hour: behind the gap that is accepted with it
    polls(world)
    world.ledgers.keep_checks(0)
    lose_ledger(world)
    polls(world, hour(2))


def gap_after_the_last_record(world: World) -> None:
    """The same after the last record of the checks; then the ledger is lost."""
    writes(world, "view")
    polls(world, FIRST_HOUR)
    world.ledgers.keep_checks(0)
    writes(world, "click")
    overtaken(world)
    lose_ledger(world)
    polls(world, hour(1))


def centre_lost_what_was_copied(world: World) -> None:
    """The central cluster loses the last events and promises; the edge has deleted them; ledger and
    staged events are lost.
    """
    writes(world, "view")
    polls(world, FIRST_HOUR)
    writes(world, "click", "click")
    polls(world)
    world.clock.advance(31)
    polls(world)
    world.ledgers.keep_checks(0)
    for n in range(len(EDGE_PARTITIONS)):
        world.pipeline.retention(n)
    world.pipeline.shorten((AUDIT, events_topic("click")), 2)
    for path in staged_files(world, "events"):
        world.storage.delete(path)
    lose_ledger(world)
    polls(world, hour(1))
    world.judge.given_up |= world.producers.events.keys()


def centre_lost_what_was_staged(world: World) -> None:
    """The same while the driver runs: other events and promises come into their places, until the
    logs are longer again.
    """
    staged_and_lost(world)
    writes(world, "click")
    polls(world)
    for _ in range(3):
        writes(world, "click")
        arrive(world)
    polls(world, hour(1))


def closer_alone_sees_that_promises_are_lost(world: World) -> None:
    """Promises and events lose their ends, and grow beyond them before the next micro-batch; the
    closer looked in between.
    """
    staged_and_lost(world)
    world.clock.advance(31)
    world.closer.step()
    grows(world, 5)
    polls(world, hour(1))
    world.judge.given_up |= (
        world.producers.events.keys()
    )  # events that came into lost places: nobody saw that log shorter


def closed_events_lost_and_replaced(world: World) -> None:
    """A log loses events of closed hours; the driver sees it, others come into their places, and
    the ledger is lost.
    """
    polls(world, FIRST_HOUR)
    for n in (1, 2, 3):
        writes(world, "click", "click")
        polls(world, hour(n))
    world.pipeline.shorten((events_topic("click"),), 9)
    world.pipeline.stage_all(0)
    world.ledgers.keep_checks(0)
    grows(world, 5)
    lose_ledger(world)
    polls(world, hour(4))


def staged_events_are_in_files_alone(world: World) -> None:
    """Events of an open hour are staged, their log loses them, and the ledger is lost before
    anybody looks.
    """
    for _ in range(3):
        writes(world, "click", "view")
        arrive(world)
    world.ledgers.keep_checks(0)
    world.pipeline.shorten((events_topic("click"),), 4)
    lose_ledger(world)
    world.pipeline.stage_all(0)
    polls(world, FIRST_HOUR)


def clock_ahead_and_nobody_there(world: World) -> None:
    """All hosts and the service have said goodbye, and the closer's clock runs ten hours ahead."""
    writes(world, "click")
    world.producers.report(0)
    world.producers.all_leave(0)
    world.pipeline.mirror_all(0)
    world.driver_clock.ahead_ms = 36_000_000
    polls(world)


def an_hour_of_events(world: World) -> None:
    """Staged in some batches."""
    for _ in range(3):
        writes(world, "click", "view", "click")
        world.pipeline.arrive()
    polls(world, FIRST_HOUR)


# What they need.


def overtaken(world: World) -> None:
    """The edge lets go of all promises and clicks that it holds."""
    for topic in (AUDIT, events_topic("click")):
        for p in (p for p in world.pipeline.edge.logs if p.topic == topic):
            world.pipeline.mirror.overtake(p)


def staged_and_lost(world: World) -> None:
    """Clicks and their promises are staged in the second hour, and gone from the ends of the
    central logs.
    """
    writes(world, "view")
    polls(world, FIRST_HOUR)
    for _ in range(3):
        writes(world, "click")
        arrive(world)
    world.pipeline.shorten((AUDIT, events_topic("click")), 6)


def lose(world: World) -> None:
    """The ledger, and every staged file."""
    for path in [*staged_files(world, "events"), *staged_files(world, "audit")]:
        world.storage.delete(path)
    lose_ledger(world)


def named(world: World, at: Hour) -> None:
    """What is closed of the hour is forced, and says which promises are gone."""
    for (event_type, closed), m in world.judge.manifests.items():
        says = any(f"{AUDIT} partition 0: offsets [" in text for text in m.evidence.waived)
        if closed == at and not (m.grade.value == "forced" and says):
            raise Broken(
                f"{event_type} {at} is {m.grade.value}, and does not name the promises "
                "that are gone"
            )


# Faults.


def marker_covers_later_hours(patch: Patch) -> None:
    """A rebuild takes the last marker's offsets as covering everything below them."""
    # of a class method, which mypy takes for a function
    real = BucketChain.from_markers.__func__  # type: ignore[attr-defined]

    def of(cls: type[BucketChain], closed: Any) -> BucketChain:
        chain: BucketChain = real(cls, closed)
        offsets = {(o.topic_id, o.partition): o.next for o in chain.last.offsets}
        return dataclasses.replace(chain, closed_next=offsets)

    patch.setattr(BucketChain, "from_markers", classmethod(of))


def gaps_passed_over(patch: Patch) -> None:
    """A rebuild does not look for offsets that neither Kafka nor a staged file has."""
    patch.setattr("hourmark_etl.recovery.rebuilt_offsets.find_uncovered_offsets", lambda *_: [])


def length_of_promises_is_not_asked(patch: Patch) -> None:
    """A rebuild does not compare the logs of promises with how far they were staged or settled."""
    without_epochs(patch)
    patch.setattr(
        "hourmark_etl.recovery.rebuilt_offsets.OffsetRebuilder._find_shorter", lambda *_: {}
    )


def waits_until_it_is_longer(patch: Patch) -> None:
    """Where a log ends before what was staged, nothing is staged of it until it is longer."""
    patch.setattr("hourmark_etl.ledger.batches.restart_truncated_logs", lambda *_: None)
    closer_waits_until_it_is_longer(patch)


def closer_waits_until_it_is_longer(patch: Patch) -> None:
    """The closer keeps no gap where it finds a log of promises shorter."""
    without_epochs(patch)
    patch.setattr("hourmark_etl.closing.cut.clusters.record_truncated_audit_logs", lambda *_: None)


def markers_are_believed(patch: Patch) -> None:
    """A rebuild takes offsets in markers for those of now, also where the log had lost its end."""
    without_epochs(patch)
    real = OffsetRebuilder._closed_next
    patch.setattr(OffsetRebuilder, "_closed_next", lambda self, _=(): real(self))


def ends_of_logs_are_not_asked(patch: Patch) -> None:
    """A rebuild lists staged files of what retention took alone."""
    without_epochs(patch)

    def without_end(live: Any, starts: Any, ends: Any, epochs: Any) -> PartitionLogs:
        return PartitionLogs(live, starts, dict.fromkeys(ends, 1 << 62), epochs)

    patch.setattr("hourmark_etl.recovery.rebuilt_offsets.PartitionLogs", without_end)


def accepted_gaps_are_forgotten(patch: Patch) -> None:
    """A rebuild takes over the checks, and not what was accepted by then."""
    patch.setattr("hourmark_etl.recovery.offset_records.all_gaps", lambda _: [])


def copied_for_all_it_knows(patch: Patch) -> None:
    """A rebuild takes all that the edge has deleted by now for copied."""

    def known(connection: Any, checks: Iterable[EdgeCheck]) -> None:
        put_checks(connection, [dataclasses.replace(c, mirror_next=1 << 40) for c in checks])

    patch.setattr("hourmark_etl.recovery.rebuilt_offsets.put_checks", known)


def nobody_need_be_there(patch: Patch) -> None:
    """Hours close although no delivery service is live."""
    patch.setattr("hourmark_etl.closing.cut.readiness.describe_missing_service", lambda _: None)


def hides_a_row(patch: Patch) -> None:
    """Of the first staged file that is read for a bucket, a reader silently gives a row less, again
    and again.
    """
    real_init, real_read = VerifiedFile.__init__, files._read
    hiding: list[str] = []

    def init(self: VerifiedFile, file: BinaryIO, path: str) -> None:
        real_init(self, file, path)
        self.path = path  # type: ignore[attr-defined]  # kept for `read`

    def read(
        file: VerifiedFile, wanted: Any, columns: Any, within: Any
    ) -> tuple[pa.Table, npt.NDArray[np.int64]]:
        table, counts = real_read(file, wanted, columns, within)
        path = file.path  # type: ignore[attr-defined]  # of `init`
        if "datum" not in columns or not len(table) or path not in (hiding or [path]):
            return table, counts
        hiding.append(path)
        counts = counts.copy()
        counts[np.flatnonzero(counts)[-1]] -= 1
        return table.slice(0, len(table) - 1), counts

    patch.setattr(VerifiedFile, "__init__", init)
    patch.setattr(files, "_read", read)


def nobody_counts(patch: Patch) -> None:
    """The same, and nothing between the proof and the bucket compares rows: duplicates are what is
    left.
    """
    hides_a_row(patch)

    def check_read(listed: Iterable[Any], read: Mapping[Any, Any]) -> None:
        return None

    def written(kind: type[WrittenHour], row: Sequence[Any]) -> WrittenHour:
        return dataclasses.replace(
            from_row(kind, row),
            publish_error="",
            left_out={},
            faults=(),
            unwritable="",
            unverified=(),
        )

    patch.setattr("hourmark_etl.closing.units.verify_read_rows", check_read)
    patch.setattr("hourmark_etl.closing.write.writing.verify_read_rows", check_read)
    patch.setattr("hourmark_etl.closing.write.writing.from_row", written)


STORIES: Mapping[str, tuple[Plant, Story]] = {
    "unknown-is-an-offset": (unknown_is_an_offset, audit_leader_away),
    "marker-covers-later-hours": (marker_covers_later_hours, marker_and_later_hours),
    "gaps-passed-over": (gaps_passed_over, promises_lost_everywhere),
    "accepted-gaps-forgotten": (
        accepted_gaps_are_forgotten,
        gap_accepted_before_the_ledger_was_lost,
    ),
    "copied-for-all-it-knows": (copied_for_all_it_knows, gap_after_the_last_record),
    "length-of-promises-not-asked": (length_of_promises_is_not_asked, centre_lost_what_was_copied),
    "waits-until-it-is-longer": (waits_until_it_is_longer, centre_lost_what_was_staged),
    "closer-waits-until-it-is-longer": (
        closer_waits_until_it_is_longer,
        closer_alone_sees_that_promises_are_lost,
    ),
    "markers-are-believed": (markers_are_believed, closed_events_lost_and_replaced),
    "ends-of-logs-not-asked": (ends_of_logs_are_not_asked, staged_events_are_in_files_alone),
    "nobody-counts": (nobody_counts, an_hour_of_events),
    "nobody-need-be-there": (nobody_need_be_there, clock_ahead_and_nobody_there),
}

LOSING = {  # their stories lose promises, and buckets must say so
    "gaps-passed-over",
    "accepted-gaps-forgotten",
    "copied-for-all-it-knows",
    "length-of-promises-not-asked",
    "waits-until-it-is-longer",
    "closer-waits-until-it-is-longer",
}


@pytest.mark.parametrize("name", representative([*STORIES]))
def test_a_planted_fault_is_found(
    name: str, monkeypatch: Patch, ledgers: Path, template: Path
) -> None:
    is_found(*STORIES[name], monkeypatch, ledgers, template)


@pytest.mark.parametrize("name", representative([*STORIES]))
def test_the_same_story_holds_without_the_fault(name: str, ledgers: Path, template: Path) -> None:
    seen = played(STORIES[name][1], ledgers, template)
    assert seen["buckets proved"] > 0
    assert (seen["buckets forced"] > 0) == (name in LOSING), seen


def test_rows_that_a_reader_hides_are_missed_and_staged_again(
    monkeypatch: Patch, ledgers: Path, template: Path
) -> None:
    hides_a_row(monkeypatch)
    assert played(an_hour_of_events, ledgers, template)["staged again"] == 1
