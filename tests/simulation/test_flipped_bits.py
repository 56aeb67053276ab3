"""Single bits flipped in, and single files removed from, what closing reads: never a proof of a
bucket that is not whole.

One hour has been closed, with unaudited rows; the next one has late copies of its events, and the
promise of its unaudited rows. Files are tiny, with many row groups and blocks. `HOURMARK_BITS` is
how many bits of each file are tried by what reads it; through the whole of closing, from the freeze
to the published bucket, it is a fifteenth of them. Markers are read by a rebuild, so there the
ledger is lost as well.
"""

from __future__ import annotations

import functools
import io
import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO
from uuid import UUID

import fastavro
import pytest
from tests.support.asked_ids import small_blocks
from tests.support.closing import hour, manifest, settle, until
from tests.support.forking import fork
from tests.support.rebuilding import lose_ledger
from tests.support.simulator.damage import MARKERS, FileFault
from tests.support.simulator.sites import ALIAS
from tests.support.simulator.truth import SCHEMAS, Range
from tests.support.simulator.world import World
from tests.support.tiers import representative

from hourmark.errors import HourmarkError
from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import AUDIT, central_topic, events_topic
from hourmark.records.manifest import MARKER
from hourmark_etl.closing.engine import Engine
from hourmark_etl.closing.write.writing import SealedHour
from hourmark_etl.errors import Unreadable
from hourmark_etl.ids import lookups as ids_module
from hourmark_etl.ledger import frontiers
from hourmark_etl.ledger.staged.listings import read_assigned_groups
from hourmark_etl.model import AuditOffsets
from hourmark_etl.staging import files
from hourmark_etl.staging.verified import compute_digest

KINDS = ("events", "audit", "unaudited", "index", "bucket")
BITS = int(os.environ.get("HOURMARK_BITS", "60"))
EVENTS = 40
CLOSINGS = max(4, BITS // 15)
UNHARMED = -1  # no bit, and no loss
PLACES = dict.fromkeys(("events", "audit"), "_staging") | dict.fromkeys(
    ("bucket", "marker"), MARKERS
)
PLACES |= {"unaudited": "_unaudited", "index": "_index"}
# What may become of the second hour; each of them is either whole, or waits and says for what.
BECOMES = {
    "events": {"right"},
    "audit": {"right"},
    "unaudited": {"right", "waits"},
    "index": {"right"},
    "bucket": {"right", "waits"},
    "marker": {"right", "waits", "refused"},
}


class Moment:
    """The second hour of `click`, listed, and not proved yet: what proving and writing it gives."""

    def __init__(self, world: World) -> None:
        self.world, self.engine = world, Engine(world.storage, world.database, world.config)
        world.engine = lambda database: Engine(world.storage, database, world.config)  # type: ignore[method-assign]
        world.start_closer()
        promised, unpromised = self.take(), self.take()
        self.append(promised)
        self.promise(promised)
        self.append(unpromised)  # its audit record is on its way
        unpromised.acked = True
        until(world, hour(0))
        settle(world)
        closed = manifest(world, "click")
        assert (closed.grade.value, closed.events, closed.unaudited) == (
            "proved",
            2 * EVENTS,
            EVENTS,
        )
        fresh = self.take()
        self.append(fresh)
        self.append(promised)  # again: its answer was lost
        for sent in (fresh, promised, unpromised):
            self.promise(sent)
        self.fresh = {bytes(e.id) for e in fresh.events}
        until(world, hour(1))
        world.producers.report(0)
        world.pipeline.arrive()

    def take(self) -> Range:
        producers, events = self.world.producers, []
        for _ in range(EVENTS):
            producers.lines += 1
            events.append(
                producers.new_event(producers.lines, 0, "click", self.world.clock.now_ms())
            )
        producers.add_range(0, tuple(events))
        return producers.ranges[-1]

    def append(self, sent: Range) -> None:
        for e in sent.events:
            self.world.producers.append_row(sent, e)

    def promise(self, sent: Range) -> None:
        self.world.producers.promise(sent, sent.events)
        sent.acked = True

    def freeze(self) -> None:
        (self.frontier,) = [f for f in self.world.frontiers() if f.event_type == "click"]
        topics = {"click": [central_topic(events_topic("click"), ALIAS)]}
        frontiers.freeze(self.world.database, self.world.closer.lease, [self.frontier], topics)
        self.below = AuditOffsets.from_offsets(
            len(self.world.pipeline.central.logs[Partition(central_topic(AUDIT, ALIAS), 0)].records)
        )

    def path(self, kind: str) -> str:
        """The file of this kind that was written last."""
        named = {
            "events": "/events-",
            "audit": "/audit-",
            "unaudited": "_unaudited/",
            "index": "_index/",
            "bucket": "/part-",
        }
        if kind == "marker":
            return f"{hour(0).bucket_path('click')}/{MARKER}"
        found = [p for p in self.world.storage.snapshot().files if named[kind] in p]
        return found[-1]

    def outcome(self) -> str:
        """AssertionError where the hour is proved and its bucket is not what was acknowledged,
        once.
        """
        storage = self.world.storage
        try:
            proof = self.engine.prove([self.frontier], self.below)["click"]
            if proof.findings:
                return "not proved"
            (listed,) = read_assigned_groups(self.world.database, [self.frontier])
            texts = {n: json.dumps(schema) for n, schema in SCHEMAS.items()}
            (written,) = self.engine.write(
                [SealedHour("click", self.frontier.hour, tuple(listed))],
                texts,
                "_attempts/x",
                "deflate",
            )
        except Unreadable as error:
            return f"unreadable {error.path}"
        if written.publish_error or written.unwritable:
            return "not published"
        ids = [i for f in written.files for i in _ids(storage.read(f.path))]
        assert sorted(ids) == sorted(self.fresh), (
            "the bucket does not hold each acknowledged event once"
        )
        assert sum(rows.events for rows in written.duplicates.values()) == EVENTS
        storage.delete("_attempts")
        return "right"


def _ids(container: bytes) -> list[bytes]:
    return [
        UUID(str(r["event_id"])).bytes if not isinstance(r["event_id"], bytes) else r["event_id"]
        for r in fastavro.reader(io.BytesIO(container))
        if isinstance(r, dict)
    ]


@pytest.fixture
def moment(ledgers: Path, template: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Moment]:
    monkeypatch.setattr(files, "ROWS_IN_GROUP", 8)
    small_blocks(monkeypatch, 8)
    world = World(ledgers, template)
    yield Moment(world)
    world.end()


@pytest.mark.slow
@pytest.mark.parametrize("kind", representative([*KINDS]))
@pytest.mark.parametrize(
    "bits", [BITS, pytest.param(100 * BITS, marks=[pytest.mark.long, pytest.mark.timeout(3600)])]
)
def test_no_flipped_bit_and_no_lost_file_lets_a_bucket_miss_or_double_an_event(
    moment: Moment, kind: str, bits: int
) -> None:
    moment.freeze()
    assert moment.outcome() == "right"
    found = faults(moment, kind, bits)
    spoilt = {
        "events": "unreadable",
        "audit": "unreadable",
        "unaudited": "not proved",
        "index": "right",
        "bucket": "not published",
    }
    assert set(found) <= {"right", spoilt[kind]}, found
    assert found[spoilt[kind]] > bits // 2, found


def faults(moment: Moment, kind: str, bits: int) -> Counter[str]:
    """What becomes of so many flipped bits of a file of this kind, and of its loss."""
    storage = moment.world.storage
    if kind == "bucket":
        storage.delete(moment.path("index"))  # a cache: the bucket itself is read
    path = moment.path(kind)
    good = storage.read(path)

    def said_of(bit: int | None) -> str:
        storage.delete(path)
        if bit is not None:
            storage.write_new(path, flipped(good, bit))
        said = moment.outcome()
        assert not said.startswith("unreadable") or said == f"unreadable {path}", said
        return said.partition(" _")[0]

    found = tried(path, len(good), bits, said_of)
    storage.delete(path)
    storage.write_new(path, good)
    return found


def flipped(content: bytes, bit: int) -> bytes:
    """The same with one bit changed."""
    bad = bytearray(content)
    bad[bit // 8] ^= 1 << bit % 8
    return bytes(bad)


def tried(path: str, size: int, bits: int, outcome: Callable[[int | None], str]) -> Counter[str]:
    """What becomes of so many bits of a file, chosen at random, and of its loss (None); what is
    false names the bit.
    """
    seed = random.randrange(2**32)
    print("seed", seed)
    found = Counter[str]()
    for bit in [None, *random.Random(seed).choices(range(8 * size), k=bits)]:
        try:
            found[outcome(bit)] += 1
        except AssertionError as error:
            raise AssertionError(f"bit {bit} of {path} (seed {seed}): {error}") from error
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", representative([*PLACES]))
@pytest.mark.parametrize(
    "bits",
    [CLOSINGS, pytest.param(100 * CLOSINGS, marks=[pytest.mark.long, pytest.mark.timeout(3600)])],
)
def test_no_flipped_bit_and_no_lost_file_closes_a_bucket_that_is_not_whole(
    moment: Moment, kind: str, bits: int
) -> None:
    path = moment.path(kind)
    assert closed_with(moment, kind, path, UNHARMED) == "right"
    found = tried(
        path,
        moment.world.storage.size(path),
        bits,
        functools.partial(closed_with, moment, kind, path),
    )
    print(kind, dict(found))
    assert set(found) <= BECOMES[kind], found


def closed_with(moment: Moment, kind: str, path: str, bit: int | None) -> str:
    """What becomes of the second hour, played on with this bit flipped, or the file gone;
    AssertionError where it is false.
    """
    world = fork(moment.world)
    try:
        if kind == "bucket":
            world.storage.delete(moment.path("index"))  # a cache: the bucket itself is read
        if bit != UNHARMED:
            world.damages.spoil(
                FileFault("remove" if bit is None else "flip", PLACES[kind], 1), path, bit or 0
            )
        try:
            if kind == "marker":
                lose_ledger(world)
            settle(world)
        except HourmarkError:
            return "refused"
        closed = world.judge.manifests.get(("click", hour(1)))
        if closed is None:
            return "waits"
        assert closed.grade.value == "proved" and closed.events == len(moment.fresh)
        assert {
            bytes(i) for i, where in world.judge.where.items() if where == ("click", hour(1))
        } == moment.fresh
        assert (
            closed.duplicates_removed == (3 if kind == "marker" else 1) * EVENTS
        )  # a rebuilt ledger stages all again
        return "right"
    finally:
        world.end()


@pytest.mark.slow
def test_the_checker_finds_an_index_that_believes_itself(
    moment: Moment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted fault: the digest in its name is not looked at."""
    real = ids_module._blocks

    def believed(file: BinaryIO, _: str) -> Any:
        content = file.read()
        number = int.from_bytes(content[-8:], "little")
        table = content[-8 - number * ids_module._BLOCK.itemsize :]
        return real(io.BytesIO(content), f"x-{compute_digest(table).hex()}.ids")

    moment.freeze()
    monkeypatch.setattr(ids_module, "_blocks", believed)
    with pytest.raises(AssertionError, match="does not hold each acknowledged event once"):
        faults(moment, "index", 100 * BITS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["events", "audit", "index"])
def test_the_closer_heals_a_flipped_bit_or_does_without(moment: Moment, kind: str) -> None:
    world, storage = moment.world, moment.world.storage
    path = moment.path(kind)
    good = storage.read(path)
    storage.delete(path)
    storage.write_new(
        path, flipped(good, 8 * (len(good) - 100) + 2)
    )  # of its end: a footer, or a table of blocks
    settle(world)
    closed = manifest(world, "click", hour(1))
    assert (closed.grade.value, closed.events, closed.duplicates_removed) == (
        "proved",
        EVENTS,
        EVENTS,
    )
    assert world.seen["staged again"] == (kind != "index")
