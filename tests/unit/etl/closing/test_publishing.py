"""Buckets of one type are prepared side by side and published in order, those of a new day at once;
wherever the closer is killed, and whoever publishes beside it, each marker names the one before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.bucket_chains import expire_days
from tests.support.closing import frontier, manifests, send_old, settle, settle_old, wait_of
from tests.support.simulator.hooks import InlineExecutor, Killed
from tests.support.simulator.truth import FIRST_HOUR
from tests.support.simulator.world import World

from hourmark.records.hours import Hour
from hourmark.records.manifest import MARKER, Manifest, PreviousMarker
from hourmark_etl.buckets.reader import read_marker
from hourmark_etl.closing.attempts import publish_folder
from hourmark_etl.closing.engine import Engine
from hourmark_etl.closing.publishing import Publisher, PublishResult
from hourmark_etl.ledger.frontiers import record_closed_hours
from hourmark_etl.model import Frontier, HourState
from hourmark_etl.recovery.check import check_markers
from hourmark_etl.storage import SafeMode, Storage
from hourmark_etl.storage.folders import ATTEMPTS_FOLDER

# Two hours of a day, and three of a later one.
HOURS = [Hour.parse(f"2027-01-{of}") for of in ("13T15", "13T16", "15T01", "15T02", "15T04")]
DAYS = [f"click/date=2027-01-{day}" for day in (13, 15)]
POINTS_MAX = 400


@pytest.fixture
def old(world: World) -> World:
    """Events of all these hours, noticed and waiting for the next reports."""
    for at in HOURS:
        send_old(world, at)
    settle(world)
    world.clock.advance(12)
    world.producers.report(0)
    return world


def assert_chained(world: World) -> None:
    """Each hour has one bucket, whose marker names the one before it as that stands."""
    world.check()
    found = manifests(world)
    assert [m.hour for m in found] == [str(at) for at in HOURS]
    assert {m.grade.value for m in found} == {"proved"}
    before = None
    for at, m in zip(HOURS, found, strict=True):
        assert m.previous == before, at
        before = PreviousMarker.from_marker(str(at), read_marker(world.storage, "click", at))
    assert not world.storage.exists(ATTEMPTS_FOLDER) or not world.storage.list(ATTEMPTS_FOLDER)
    world.judge.check_end()


def published_at(world: World) -> list[str]:
    """Targets of all renames out of attempts, from here on."""
    real, targets = world.storage.rename_new, list[str]()

    def rename_new(source: str, target: str, *, unpublished: bool = False) -> None:
        real(source, target, unpublished=unpublished)
        if source.startswith(ATTEMPTS_FOLDER) and target.startswith("click"):
            targets.append(target)

    world.storage.rename_new = rename_new  # type: ignore[method-assign]
    return targets


def test_buckets_of_a_new_day_are_published_at_once_and_days_in_order(old: World) -> None:
    targets = published_at(old)
    settle(old)
    assert targets == DAYS
    assert_chained(old)


def test_a_day_whose_folder_stands_is_published_hour_by_hour(old: World) -> None:
    old.storage.make_folder(DAYS[0])
    targets = published_at(old)
    settle(old)
    assert targets == [f"{DAYS[0]}/hour=15", f"{DAYS[0]}/hour=16", DAYS[1]]
    assert_chained(old)


def test_a_day_of_which_an_hour_is_closed_goes_on_hour_by_hour_without_a_try(
    world: World,
) -> None:
    send_old(world, HOURS[2])
    settle_old(world)
    tried = list[str]()
    real = world.storage.rename_new

    def rename_new(source: str, target: str, *, unpublished: bool = False) -> None:
        tried.append(target)
        real(source, target, unpublished=unpublished)

    world.storage.rename_new = rename_new  # type: ignore[method-assign]
    settle(world, Hour(FIRST_HOUR.start_s + 3600))
    assert [t for t in tried if t.startswith("click")] == [
        f"{DAYS[1]}/hour={n:02}" for n in (8, 9)
    ], "two hours of one round"


def test_where_one_hour_cannot_be_prepared_those_before_it_are_published_and_none_after_it(
    old: World,
) -> None:
    real = old.storage.read

    def flipped(path: str, *, size: int | None = None) -> bytes:
        content = real(path, size=size)
        bad = path.startswith(ATTEMPTS_FOLDER) and path.endswith(f"15/hour=02/{MARKER}")
        return content[:20] + b"\xff" + content[21:] if bad else content

    old.storage.read = flipped  # type: ignore[method-assign]
    settle(old)
    assert [m.hour for m in manifests(old)] == [str(at) for at in HOURS[:3]]
    assert not old.storage.exists(HOURS[4].bucket_path("click"))
    assert (frontier(old).hour, wait_of(old).phase) == (HOURS[3], "publishing")
    assert "differs from the marker that was written" in wait_of(old).what[0]
    old.storage.read = real  # type: ignore[method-assign]
    old.clock.advance(11)
    settle(old)
    assert_chained(old)


@pytest.fixture
def sealed(old: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """The same, sealed; the closer died before it wrote anything."""

    def kill(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(Publisher, "publish", kill)
    with pytest.raises(Killed):
        settle(old)
    monkeypatch.undo()
    assert frontier(old).state is HourState.SEALED
    return old


class Rival:
    """A storage on which something happens before the n-th rename out of an attempt."""

    def __init__(self, world: World, renames: int, happening: Callable[[], object]) -> None:
        self._world, self._renames, self._happening = world, renames, happening

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.storage, name)

    def rename_new(self, source: str, target: str, *, unpublished: bool = False) -> None:
        if target.startswith("click"):
            self._renames -= 1
            if self._renames == 0:
                self._happening()
        self._world.storage.rename_new(source, target, unpublished=unpublished)


def publisher_of(world: World, storage: Any) -> Publisher:
    return Publisher(
        engine=Engine(world.storage, world.database, world.config),
        storage=storage,
        database=world.database,
        lease=world.closer.lease,
        clock=world.clock,
        executor=InlineExecutor,
        codec="deflate",
    )


def sealed_hours(world: World) -> list[Frontier]:
    return [f for f in world.frontiers() if f.state is HourState.SEALED]


def publish(world: World, storage: Any) -> PublishResult:
    """By a publisher on this storage: all that is sealed."""
    return publisher_of(world, storage).publish(sealed_hours(world))


def published(result: PublishResult) -> tuple[list[str], int]:
    """Hours of one attempt, and how many buckets were not published."""
    assert len({c.manifest.attempt for c in result.closings}) == 1
    return [c.manifest.hour for c in result.closings], len(result.failures)


def test_what_another_attempt_published_meanwhile_is_taken_as_it_stands(sealed: World) -> None:
    first = list[PublishResult]()
    rival = Rival(sealed, 1, lambda: first.append(publish(sealed, sealed.storage)))
    second = publish(sealed, rival)
    assert published(second) == published(first[0]) == ([str(at) for at in HOURS], 0)
    assert [c.manifest for c in second.closings] == [c.manifest for c in first[0].closings]
    record_closed_hours(sealed.database, sealed.closer.lease, second.closings)
    assert_chained(sealed)


def test_no_marker_names_one_that_another_attempt_kept_from_being_published(sealed: World) -> None:
    def refuse() -> None:
        raise SafeMode("click", "hdfs://nn/click", "name node is in safe mode")

    first = list[PublishResult]()
    slow = Rival(
        sealed, 1, lambda: first.append(publish(sealed, Rival(sealed, 2, refuse)))
    )  # which publishes one day and no more
    second = publish(sealed, slow)
    assert published(first[0]) == ([str(at) for at in HOURS[:2]], 1)
    assert published(second) == ([str(at) for at in HOURS[:2]], 0), "its own others name its own"
    record_closed_hours(sealed.database, sealed.closer.lease, second.closings)
    settle(sealed)
    assert_chained(sealed)


def test_a_closer_that_is_killed_between_two_days_leaves_the_first_one_whole(
    old: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = list[str]()

    def publish_first(storage: Storage, buckets: Sequence[tuple[Frontier, Manifest]]) -> bool:
        if days:
            raise Killed
        days.append(buckets[0][1].hour)
        return publish_folder(storage, buckets)

    monkeypatch.setattr("hourmark_etl.closing.publishing.publish_folder", publish_first)
    with pytest.raises(Killed):
        settle(old)
    monkeypatch.undo()
    old.check()
    assert [m.hour for m in manifests(old)] == [str(at) for at in HOURS[:2]]
    old.start_closer()
    settle(old)
    assert_chained(old)


def test_buckets_removed_before_a_killed_closer_recorded_them_are_found(sealed: World) -> None:
    first = publish(sealed, sealed.storage)
    now_ms = Hour.parse("2027-01-20T00").start_s * 1000
    assert expire_days(sealed.storage, "click", now_ms, days=5) == ["2027-01-13"]
    found = publisher_of(sealed, sealed.storage).find_published(sealed_hours(sealed))
    assert (found.closings, found.failures) == (first.closings, [])
    record_closed_hours(sealed.database, sealed.closer.lease, found.closings)
    assert not list(check_markers(sealed.database, sealed.storage, sealed.frontiers(), {}))


def killed(world: World, point: int) -> bool:
    """Whether the next step came to this point, at which its closer was killed."""

    def kill() -> None:
        raise Killed

    world.pipeline.arrive()
    world.points.arm(point, kill)
    passed = world.points.passed
    closer = world.closer
    world.close_step(0)
    is_killed = world.closer is not closer
    world.points.disarm()
    assert is_killed or world.points.passed - passed < point
    return is_killed


@pytest.mark.slow
@pytest.mark.parametrize("lane", range(4))
def test_a_closer_that_is_killed_anywhere_leaves_one_bucket_of_each_hour(
    lane: int, tmp_path: Path, template: Path
) -> None:
    kept = set[int]()
    for point in range(1 + lane, POINTS_MAX, 4):
        world = World(tmp_path, template)
        for at in HOURS:
            send_old(world, at)
        settle(world)
        world.clock.advance(12)
        world.producers.report(0)
        came = killed(world, point)
        kept.add(len([at for at in HOURS if world.storage.exists(at.bucket_path("click"))]))
        settle(world)
        settle(world)
        assert_chained(world)
        world.end()
        if not came:
            break
    assert {0, 5} <= kept, "killed before the first rename, and after the last one"
