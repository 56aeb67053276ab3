"""A partition of the central cluster cannot be read: its type waits and says why, and so do all
types where it is of promises.
"""

from __future__ import annotations

from tests.support.closing import manifest, send, settle, until, wait_of
from tests.support.simulator.truth import FIRST_HOUR
from tests.support.simulator.world import World

from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import AUDIT, central_topic, events_topic
from hourmark_etl.ledger.partitions.read_errors import (
    ReadError,
    delete_passed_read_errors,
    read_errors,
    record_read_errors,
)
from hourmark_etl.model import ClosingPhase


def fail(world: World, edge_topic: str) -> Partition:
    """Staging could not read the topic's first partition."""
    p = Partition(central_topic(edge_topic, world.pipeline.mirror.alias), 0)
    error = ReadError(
        topic=p.topic,
        partition=0,
        offset=7,
        reason="the CRC of a batch is wrong",
        since_ms=world.clock.now_ms(),
    )
    record_read_errors(world.database, world.pipeline.consumer, [error])
    return p


def test_a_type_of_which_a_partition_cannot_be_read_waits_alone_and_names_it(world: World) -> None:
    send(world, ["click", "view"])
    p = fail(world, events_topic("click"))
    settle(world, FIRST_HOUR)
    assert ("view", FIRST_HOUR) in world.judge.manifests
    assert ("click", FIRST_HOUR) not in world.judge.manifests
    wait = wait_of(world, "click")
    assert wait.phase is ClosingPhase.UNREADABLE
    assert wait.what == (
        f"topic {p.topic} partition 0 cannot be read from offset 7 on: the CRC of a batch is wrong",
    )


def test_a_type_closes_once_its_partition_was_staged_beyond_the_error(world: World) -> None:
    send(world, ["click"])
    p = fail(world, events_topic("click"))
    settle(world, FIRST_HOUR)
    with world.database.transaction() as connection:
        delete_passed_read_errors(connection, {p: 8})
    assert not read_errors(world.database)
    settle(world)
    assert manifest(world, "click").grade.value == "proved"


def test_every_type_says_that_it_waits_for_promises_that_cannot_be_read(world: World) -> None:
    p = fail(world, AUDIT)
    until(world, FIRST_HOUR)
    world.closer.step()
    for event_type in ("click", "view"):
        wait = wait_of(world, event_type)
        assert (wait.phase, p.topic in wait.what[0]) == (ClosingPhase.UNREADABLE, True)


def test_pauses_between_tries_grow_to_a_limit_and_begin_again_at_another_offset(
    world: World,
) -> None:
    lease = world.pipeline.consumer
    pauses = []
    for _ in range(12):
        error = ReadError(topic="t", partition=0, offset=7, reason="damaged", since_ms=1_000)
        record_read_errors(world.database, lease, [error])
        pauses.append(read_errors(world.database)[error.topic_partition].again_at_ms - 1_000)
    assert pauses[:3] == [2_000, 4_000, 8_000]
    assert pauses[-1] == 300_000
    record_read_errors(
        world.database,
        lease,
        [ReadError(topic="t", partition=0, offset=9, reason="damaged", since_ms=5_000)],
    )
    assert read_errors(world.database)[Partition("t", 0)].again_at_ms == 7_000
