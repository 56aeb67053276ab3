"""A bit flips in a log of the edge before the mirror has copied it: its type waits and is named, all other types close."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.faults.outcome import LONG
from tests.support.etl_scene import Scene

from hourmark.topics import events_topic
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.overrides import blockers
from hourmark_infra.stack import Stack
from hourmark_infra.stack.servers import MIRROR

pytestmark = LONG
SCENE = {"names": ("flipped", "one", "two", "three"), "cluster": "both"}
FROM_END = 20  # bytes: within the last record


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Of its own: its mirror stands still at the damaged batch."""
    made = Stack.load_or_make(tmp_path_factory.mktemp("own-home"), mirror=True)
    try:
        made.up()
        yield made
    finally:
        made.down()


def flip(stack: Stack, running: Scene, topic: str) -> None:
    """One bit of the last record, in the leader's log."""
    leader = running.edge.admin.list_topics(topic).topics[topic].partitions[0].leader
    (log,) = (stack.layout.data / f"edge-{leader}").glob(f"**/{topic}-0/{0:020d}.log")
    with log.open("r+b") as file:
        file.seek(len(log.read_bytes().rstrip(b"\0")) - FROM_END)
        before = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([before ^ 4]))


def test_a_flipped_bit_at_the_edge_holds_its_type_alone(stack: Stack, running: Scene) -> None:
    flipped = running.types[0]
    stack.stop(MIRROR)
    hour = running.begin_hour()
    flip(stack, running, events_topic(flipped))
    stack.start(MIRROR)
    assert running.closed(hour, without=(flipped,)).grade.value == "proved"
    assert running.run.manifest(flipped, hour) is None

    def is_named() -> bool:
        with Database(running.run.config.etl.ledger) as database:
            found = blockers(database, running.run.config.parsing.bucket_seconds).get(flipped)
        return found is not None and found.hour == hour and any(events_topic(flipped) in each for each in found.what)

    running.wait(is_named, f"{flipped} waits for its topic")
