"""What may become of the ledger itself: an older copy comes back, or it is lost and rebuilt."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.simulator.hooks import open_ledger
from tests.support.simulator.losses import Place
from tests.support.simulator.truth import FIRST_HOUR, config_of

from hourmark.errors import Finding, Unavailable
from hourmark_etl.buckets.reader import NotClosed
from hourmark_etl.closing.publication.choice import open_publication
from hourmark_etl.errors import ForeignLedger
from hourmark_etl.ledger.database import Database
from hourmark_etl.recovery.first_hours import record_first_hours
from hourmark_etl.recovery.lost_ends import LostEndDetector
from hourmark_etl.recovery.markers import check_older_copy
from hourmark_etl.recovery.offset_records import OffsetBackupWriter, import_recorded_gaps

if TYPE_CHECKING:
    from tests.support.simulator.world import World


class LedgerFaults:
    """Actions upon the ledger of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._backup: Path | None = None
        self._staged: set[Place] = set()  # when it was made

    def end(self) -> None:
        """Let go of the copy."""
        if self._backup is not None:
            forget(self._backup)
            self._backup = None

    def back_up(self, _: int) -> None:
        """A copy of the ledger is kept."""
        self.end()
        self._backup = self._beside()
        now, kept = sqlite3.connect(self._world.ledger), sqlite3.connect(self._backup)
        with contextlib.closing(now), contextlib.closing(kept):
            now.backup(kept)
        self._staged = set(self._world.pipeline.losses.staged)

    def restore(self, _: int) -> None:
        """It comes back.

        A driver that begins with it asks the markers first, and is refused where a bucket was
        closed since.
        """
        world = self._world
        if self._backup is None:
            return
        world.wake_all()
        world.damages.bring_back_markers()
        older = self._beside()
        shutil.copy(self._backup, older)
        database = open_ledger(config_of(older))
        open_publication(world.storage).complete_interrupted()
        try:
            check_older_copy(world.storage, database, FIRST_HOUR.length_s)
        except ForeignLedger:
            database.close()
            forget(older)
            world.seen["older copy refused"] += 1
            return
        self._go_on_with(older, database)
        world.seen["older copy goes on"] += 1

    def _go_on_with(self, older: Path, database: Database) -> None:
        world, losses = self._world, self._world.pipeline.losses
        losses.pass_over(world.pipeline.positions())
        world.closer_database.close()
        world.database.close()
        forget(world.ledger)
        world.ledger, world.config, world.database = (
            older,
            config_of(older, *world.further),
            database,
        )
        world.pipeline.database, world.pipeline.config = database, world.config
        losses.go_back(self._staged)
        world.pipeline.consumer = database.acquire("consumer:default")
        record_first_hours(world.storage, database, FIRST_HOUR.length_s)
        import_recorded_gaps(world.storage, database)
        world.start_closer()
        self.look_for_lost_ends()

    def look_for_lost_ends(self) -> None:
        """As a driver does before the closer's first step, which waits for leaders of promises."""
        world, pipeline = self._world, self._world.pipeline
        lost_ends = LostEndDetector(
            world.storage, world.database, pipeline.central, pipeline.topics
        )
        while not lost_ends.is_done:
            try:
                lost_ends.poll(world.closer.lease, world.clock.now_ms())
            except Unavailable:
                pipeline.mirror_all(0)  # it does not wait
            if not lost_ends.is_done:
                pipeline.leaders_come_back()

    def keep_checks(self, _: int) -> None:
        """The driver writes to storage where the mirrors stood."""
        world = self._world
        OffsetBackupWriter(world.storage, world.database, world.clock).update(world.closer.lease)

    def lose_ledger(self, draw: int) -> None:
        """The ledger is gone, and rebuilt from what is left; markers that cannot be read are
        brought back first.
        """
        from tests.support.rebuilding import lose_ledger  # it knows the world

        world = self._world
        world.wake_all()
        if world.seen["ledger lost"] >= 2:
            return
        old = world.ledger
        self.end()  # a copy from before a rebuild: docs/concepts/delivery-guarantees.md
        world.pipeline.leaders_come_back()
        try:
            lose_ledger(world)
        except (Finding, NotClosed):
            if not world.damages.bring_back_markers():
                raise
            world.seen["rebuild refused a damaged marker"] += 1
            lose_ledger(world)
        world.seen["ledger lost"] += 1
        forget(old)

    def _beside(self) -> Path:
        return self._world.ledger.with_name(f"{uuid.uuid4().hex}.sqlite")


def forget(ledger: Path) -> None:
    """Delete it, with its log."""
    for file in ledger.parent.glob(f"{ledger.name}*"):
        file.unlink()
