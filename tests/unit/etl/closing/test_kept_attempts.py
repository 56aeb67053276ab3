"""On an object store, attempts are deleted only while no hour is sealed: until then, a request that
is late may still select one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.closing import frontier, grade, hour, line, settle, until, wait_of
from tests.support.simulator.hooks import Killed
from tests.support.simulator.objects import DictionaryClient, SimulatedObjects
from tests.support.simulator.truth import FIRST_HOUR, make_template
from tests.support.simulator.world import World

from hourmark_etl.model import HourState
from hourmark_etl.storage import StorageError
from hourmark_etl.storage.folders import ATTEMPTS_FOLDER, SELECTIONS_FOLDER


class Refusing(DictionaryClient):
    """No selection of this type is created while it is named; `dies` is what happens instead."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = ""
        self.dies = False

    def put_new(self, key: str, content: bytes | memoryview, write_id: str) -> bool:
        if self.refused and key.startswith(f"{SELECTIONS_FOLDER}/{self.refused}"):
            if self.dies:
                raise Killed
            raise StorageError(key, self.url(key), "planted")
        return super().put_new(key, content, write_id)


@pytest.fixture
def client() -> Refusing:
    return Refusing()


@pytest.fixture
def world(tmp_path: Path, client: Refusing) -> Iterator[World]:
    made = World(tmp_path, make_template(tmp_path), storage=SimulatedObjects(client))
    yield made
    made.end()


def attempts(client: Refusing) -> set[str]:
    return {key.split("/")[1] for key in client.list_all(ATTEMPTS_FOLDER)}


def test_buckets_are_closed_and_leave_no_attempts(world: World, client: Refusing) -> None:
    line(world)
    settle(world, FIRST_HOUR)
    assert grade(world) == grade(world, "view") == "proved"
    assert attempts(client) == set()
    assert client.list_all(SELECTIONS_FOLDER)


def test_attempts_of_failed_rounds_are_kept_while_an_hour_is_sealed(
    world: World, client: Refusing
) -> None:
    line(world)
    client.refused = "click"
    settle(world, FIRST_HOUR)
    assert frontier(world).state is HourState.SEALED
    assert wait_of(world).phase == "storage"
    first = attempts(client)
    assert first
    world.clock.advance(60)
    settle(world)
    assert first < attempts(client), "another round failed"
    client.refused = ""
    world.clock.advance(60)
    settle(world)
    assert grade(world) == "proved"
    settle(world)
    assert attempts(client) == set()


def test_attempts_of_a_closer_that_was_killed_are_kept_while_an_hour_is_sealed(
    world: World, client: Refusing
) -> None:
    line(world)
    client.refused, client.dies = "click", True
    until(world, FIRST_HOUR)
    world.producers.report(0)
    with pytest.raises(Killed):
        settle(world)
    killed = attempts(client)
    assert killed
    client.dies = False
    world.start_closer()
    settle(world)
    assert frontier(world).state is HourState.SEALED
    assert killed < attempts(client)
    client.refused = ""
    world.clock.advance(60)
    settle(world)
    assert grade(world) == "proved"
    settle(world, hour(1))
    assert attempts(client) == set()


def test_a_request_that_is_late_selects_an_attempt_whose_files_still_exist(
    world: World, client: Refusing
) -> None:
    line(world)
    late: list[tuple[str, bytes]] = []
    put = client.put_new

    def delayed(key: str, content: bytes | memoryview, write_id: str) -> bool:
        if key.startswith(f"{SELECTIONS_FOLDER}/click"):
            late.append((key, bytes(content)))
            raise StorageError(key, client.url(key), "no response, planted")
        return put(key, content, write_id)

    client.put_new = delayed  # type: ignore[method-assign]
    settle(world, FIRST_HOUR)
    assert late and frontier(world).state is HourState.SEALED
    world.closer_database.close()
    world.start_closer()  # another closer, which deletes what it may delete
    world.closer.step()
    client.put_new = put  # type: ignore[method-assign]
    client.objects.setdefault(late[0][0], (late[0][1], "late"))
    world.clock.advance(60)
    settle(world)
    assert grade(world) == "proved"
    assert world.judge.manifests["click", FIRST_HOUR].attempt in late[0][1].decode()
