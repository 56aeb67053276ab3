"""Faults of what destroys, or brings back what was: each is played as a story, with a rule taken
away, and must be found.

The same story without the planted fault keeps the promise, and is told as it is said there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pytest
from tests.simulation.stories import (
    Patch,
    Plant,
    Story,
    is_found,
    played,
    polls,
    unknown_is_an_offset,
    writes,
)
from tests.support.closing import hour, send, send_otherwise, until
from tests.support.rebuilding import staged_files
from tests.support.restaging import retention_passes
from tests.support.simulator.damage import MARKERS, FileFault
from tests.support.simulator.pipeline import PlayedRestager
from tests.support.simulator.sites import ALIAS
from tests.support.simulator.truth import FIRST_HOUR, TYPES
from tests.support.simulator.world import World
from tests.support.tiers import representative

from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import AUDIT, CONTROL, central_topic, events_topic
from hourmark.records.manifest import MARKER, PreviousMarker
from hourmark_etl.closing import publishing, sealing
from hourmark_etl.closing.proof import evidence
from hourmark_etl.closing.proof.proof import Proof
from hourmark_etl.closing.proof.readings import RANGE
from hourmark_etl.errors import DataLoss
from hourmark_etl.model import AuditOffsets, Frontier
from hourmark_etl.storage import Storage

CLICKS = Partition(events_topic("click"), 0)


# Stories.


def promises_end_nowhere(world: World) -> None:
    """The mirror dropped an event; when its hour is cut, nobody knows where the promises end on the
    central cluster.
    """
    writes(world, "click", "click")
    world.pipeline.mirror.copy(CLICKS, 2, drop=1)
    until(world, FIRST_HOUR)
    world.producers.report(0)
    world.pipeline.arrive()
    world.pipeline.central.leaderless[Partition(central_topic(AUDIT, ALIAS), 0)] = 50
    polls(world)


def older_copy_comes_back(world: World) -> None:
    """An hour is closed, an event of it comes late, and a copy of the ledger comes back from before
    the close.
    """
    start_ms = world.clock.now_ms()
    send(world, ["click"], start_ms)
    world.pipeline.arrive()
    world.ledgers.back_up(0)
    polls(world, FIRST_HOUR)
    send(world, ["click"], start_ms)
    world.ledgers.restore(0)
    polls(world)


def copy_of_the_open_hour_comes_back(world: World) -> None:
    """Nothing was closed since; what was staged since is gone from Kafka."""
    world.ledgers.back_up(0)
    writes(world, "click", "view")
    world.pipeline.arrive()
    retention_passes(world, *CONTROL, *map(events_topic, TYPES))
    world.ledgers.restore(0)
    polls(world, FIRST_HOUR)


def retention_before_staging(world: World) -> None:
    """The central cluster deletes events and their promise before they are staged."""
    writes(world, "click", "view")
    world.pipeline.mirror_all(0)
    retention_passes(world, *CONTROL, *map(events_topic, TYPES))
    polls(world, FIRST_HOUR)


def half_a_range_is_unaudited(world: World) -> None:
    """Half of a range is lost, half is unaudited of the first hour; that file is damaged, and then
    the promise comes.
    """
    producers = world.producers
    events = [producers.new_event(n, 0, "click", world.clock.now_ms()) for n in (1, 2)]
    producers.lines = 2
    producers.add_range(0, tuple(events))
    sent = producers.ranges[-1]
    sent.acked = True  # its record is on its way
    for e in events:
        producers.append_row(sent, e)
    world.pipeline.mirror.copy(CLICKS, 2, drop=1)
    polls(world, FIRST_HOUR)
    (path,) = world.storage.content("_unaudited")
    world.damages.spoil(FileFault("flip", "_unaudited", 1), path, 800)
    producers.promise(sent, sent.events)
    polls(world, hour(1))


def marker_before_is_gone(world: World) -> None:
    """An hour is closed, its marker goes, and the next hour has ended."""
    writes(world, "click")
    polls(world, FIRST_HOUR)
    world.damages.spoil(
        FileFault("remove", MARKERS, 1), f"{FIRST_HOUR.bucket_path('click')}/{MARKER}"
    )
    writes(world, "click")
    polls(world, hour(1))


def overridden_with_a_damaged_file(world: World) -> None:
    """A staged file is damaged, Kafka holds its records, and an override closes the hour."""
    writes(world, "click", "view")
    world.producers.report(0)
    world.pipeline.arrive()
    (path,) = staged_files(world, "events")
    world.damages.lose(path)
    until(world, FIRST_HOUR)
    for draw in range(len(TYPES)):
        world.force(draw)
    polls(world)


def a_range_is_read_in_two_ways(world: World) -> None:
    """It is sent again, and its event is of the next hour then; days pass."""
    start_ms = world.clock.now_ms()
    send(world, ["click", "view"], start_ms)
    send_otherwise(world, [("click", start_ms + 3_600_000), ("view", start_ms)])
    polls(world, FIRST_HOUR)
    until(world, hour(1), seconds=world.config.etl.deadline_seconds + 1)
    polls(world)


# Faults.


def markers_are_not_asked(patch: Patch) -> None:
    """No bucket on storage is compared with the ledger."""
    patch.setattr("tests.support.simulator.ledgers.check_older_copy", lambda *_: None)
    patch.setattr("hourmark_etl.closing.closer.check_foreign_root", lambda *_: [])
    patch.setattr("hourmark_etl.closing.closer.check_not_published", lambda *_: [])
    patch.setattr("hourmark_etl.closing.publishing.check_seal_matches", lambda *_: None)


def promises_end_at_an_unknown_offset(patch: Patch) -> None:
    """-1001 is where the promises end, and a cut may know fewer of them than are settled: either
    rule alone holds the hour.
    """
    unknown_is_an_offset(patch)
    patch.setattr(AuditOffsets, "reaches", lambda *_: True)


def nothing_is_noted(patch: Patch) -> None:
    """Staging goes on at the log's start, and what lies between is no gap."""
    patch.setattr("hourmark_etl.ledger.batches.put_gaps", lambda *_: None)


def damaged_unaudited_keeps_all(patch: Patch) -> None:
    """Where a file of unaudited rows cannot be read, it is taken to keep whatever was promised."""
    real_read: Any = evidence.read_unaudited
    real_decide: Any = sealing.decide_seal
    unread: list[str] = []

    def read(storage: Storage, path: str) -> pa.Table:
        rows = real_read(storage, path)
        unread.extend([] if len(rows) else [path])
        return rows

    def decide(frontier: Frontier, proof: Proof, *rest: Any) -> Any:
        return real_decide(
            frontier, dataclasses.replace(proof, findings=()) if unread else proof, *rest
        )

    patch.setattr("hourmark_etl.closing.proof.evidence.read_unaudited", read)
    patch.setattr("hourmark_etl.closing.sealing.decide_seal", decide)


def follows_nothing(patch: Patch) -> None:
    """Where the marker before is gone, the next one is the first of its type."""
    real = publishing.read_previous_marker

    def previous_of(storage: Storage, frontier: Frontier) -> PreviousMarker | None:
        before = f"{frontier.hour.previous().bucket_path(frontier.event_type)}/{MARKER}"
        return real(storage, frontier) if storage.exists(before) else None

    patch.setattr("hourmark_etl.closing.publishing.read_previous_marker", previous_of)


def given_up_untried(patch: Patch) -> None:
    """A file is given up by the order although its records could be staged again."""

    def restage(*_: object) -> NoReturn:
        raise DataLoss("not looked for")

    patch.setattr(PlayedRestager, "restage", restage)


def records_are_not_compared(patch: Patch) -> None:
    """Two audit records of one range are two promises."""
    patch.setattr(
        "hourmark_etl.closing.proof.readings.find_differing_ranges",
        lambda new, known: new.slice(0, 0).select(RANGE),
    )


def conflicts_hold_nothing(patch: Patch) -> None:
    """They are found, and hours are closed all the same."""
    for module in ("hourmark_etl.closing.closer", "hourmark_etl.closing.sealing"):
        patch.setattr(f"{module}.format_blocking_conflicts", lambda found, frontier: ())


STORIES: Mapping[str, tuple[Plant, Story]] = {
    "unknown-end-of-promises": (promises_end_at_an_unknown_offset, promises_end_nowhere),
    "older-copy-accepted": (markers_are_not_asked, older_copy_comes_back),
    "older-copy-forgets-a-gap": (nothing_is_noted, copy_of_the_open_hour_comes_back),
    "passed-over-unnoted": (nothing_is_noted, retention_before_staging),
    "damaged-unaudited-keeps-all": (damaged_unaudited_keeps_all, half_a_range_is_unaudited),
    "follows-nothing": (follows_nothing, marker_before_is_gone),
    "given-up-untried": (given_up_untried, overridden_with_a_damaged_file),
    "records-not-compared": (records_are_not_compared, a_range_is_read_in_two_ways),
    "conflicts-hold-nothing": (conflicts_hold_nothing, a_range_is_read_in_two_ways),
}
SEEN: Mapping[str, Callable[[Mapping[str, int]], bool]] = {
    "older-copy-accepted": lambda seen: seen["older copy refused"] == 1,
    "older-copy-forgets-a-gap": lambda seen: (
        seen["older copy goes on"] == 1 and seen["buckets forced"] > 0
    ),
    "passed-over-unnoted": lambda seen: seen["buckets forced"] > 0,
    "given-up-untried": lambda seen: seen["buckets forced"] == 2 and seen["staged again"] == 1,
    "records-not-compared": lambda seen: (
        seen["buckets forced"] == seen["conflict overridden"] == 3 and seen["buckets proved"] > 0
    ),
}


@pytest.mark.parametrize("name", representative([*STORIES]))
def test_a_planted_fault_is_found(
    name: str, monkeypatch: Patch, ledgers: Path, template: Path
) -> None:
    is_found(*STORIES[name], monkeypatch, ledgers, template)


@pytest.mark.slow
@pytest.mark.parametrize("name", representative([*STORIES]))
def test_the_same_story_holds_without_the_fault(name: str, ledgers: Path, template: Path) -> None:
    seen = played(STORIES[name][1], ledgers, template)
    assert name not in SEEN or SEEN[name](seen), seen
