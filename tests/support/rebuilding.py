"""A world whose ledger is lost as a whole, and rebuilt from what is left."""

from __future__ import annotations

import uuid

from tests.support.simulator.sites import FakeCluster
from tests.support.simulator.truth import CLUSTER, FIRST_HOUR, SCHEMA_IDS, SOURCES, TYPES, config_of
from tests.support.simulator.world import World

from hourmark.config.groups import ParsingSettings
from hourmark.kafka.clients import Partition
from hourmark.rules.event_types import EventType
from hourmark.rules.revision import Rules, RulesBook, TypeVersion
from hourmark_etl.closing.publication.choice import open_publication
from hourmark_etl.ledger.database import Database
from hourmark_etl.recovery.first_hours import record_first_hours
from hourmark_etl.recovery.rebuild import rebuild
from hourmark_etl.recovery.rebuild_result import RebuildResult, RebuildSources


class CentralCluster(FakeCluster):
    """The played one, with its id."""

    def __init__(self, played: FakeCluster) -> None:
        super().__init__(played.name, ())
        self.logs = played.logs

    def cluster_id(self) -> str:
        return CLUSTER


def begin(world: World) -> None:
    """As a driver does at its start."""
    record_first_hours(world.storage, world.database, FIRST_HOUR.length_s)


def lose_ledger(world: World) -> RebuildResult:
    """The ledger is gone; the driver goes on with the rebuilt one, as after its start."""
    world.pipeline.losses.pass_over(world.pipeline.positions())
    world.pipeline.losses.rebuild()
    world.closer_database.close()
    world.database.close()
    world.ledger = world.ledger.with_name(f"{uuid.uuid4().hex}.sqlite")
    world.config = config_of(world.ledger, *world.further)
    world.database = Database(world.config.etl.ledger)
    types = {
        t: TypeVersion(
            EventType(name=t, fields=[{"name": "number", "type": "long"}]), SCHEMA_IDS[t]
        )
        for t in TYPES
    }
    rules = Rules(
        sequence=1, types=types, sources={s.name: s for s in SOURCES}, parsing=ParsingSettings()
    )
    central = CentralCluster(world.pipeline.central)
    outside = RebuildSources(
        storage=world.storage,
        kafka=world.config.kafka,
        central=central,
        rules=RulesBook(rules.records()),
        bucket_seconds=FIRST_HOUR.length_s,
        now_ms=world.clock.now_ms(),
    )
    open_publication(world.storage).complete_interrupted()
    done = rebuild(outside, world.database, lambda _: None)
    world.pipeline.database, world.pipeline.config = world.database, world.config
    world.pipeline.consumer = world.database.acquire("consumer:default")
    begin(world)
    world.start_closer()
    return done


def staged_files(world: World, kind: str) -> list[str]:
    """Paths of all that stand, the oldest first."""
    return [p for p in world.storage.content("_staging") if f"/{kind}-" in p]


def next_offsets(world: World) -> dict[Partition, int]:
    """Where staging goes on."""
    return {p: position.next_offset for p, position in world.pipeline.positions().items()}
