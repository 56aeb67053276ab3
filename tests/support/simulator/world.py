"""Everything that exists in a history: hosts and services, two clusters and a mirror, staging,
closers, and what is true of them.

Real are: ids, records and their encodings, the staging function, the ledger, all of closing. Played
are: hosts, services, Kafka, the mirror, the driver's loop. The rule that is put to the test:
docs/internals/closing.md.
"""

from __future__ import annotations

import collections
import dataclasses
import random
import shutil
import threading
import uuid
from pathlib import Path
from typing import cast

from tests.support.clock import FakeClock
from tests.support.memory_storage import MemoryStorage
from tests.support.simulator.damage import FILE_FAULTS, Damages
from tests.support.simulator.engines import ComparedEngine
from tests.support.simulator.hooks import (
    FaultPoints,
    InlineExecutor,
    Killed,
    PointedDatabase,
    open_ledger,
    pointed,
)
from tests.support.simulator.judge import WOKEN, Judge
from tests.support.simulator.ledgers import LedgerFaults, forget
from tests.support.simulator.objects import SimulatedObjects
from tests.support.simulator.pipeline import Pipeline
from tests.support.simulator.producers import Producers
from tests.support.simulator.truth import CLUSTER, FIRST_HOUR, VALUE_CHANGED, Broken, config_of

from hourmark.errors import HourmarkError, Unavailable, UsageError
from hourmark.kafka.topic_names import CONTROL
from hourmark.records.hours import Hour
from hourmark.records.manifest import Manifest
from hourmark_etl.closing.cleanup import Cleaner
from hourmark_etl.closing.closer import Closer
from hourmark_etl.closing.cut.clusters import LedgerProgress
from hourmark_etl.closing.cut.cut import Waiting
from hourmark_etl.closing.engine import Engine
from hourmark_etl.closing.ports import CloserDependencies
from hourmark_etl.ledger.conflicts import conflicts, format_blocking_conflicts
from hourmark_etl.ledger.database import CLOSER, Database
from hourmark_etl.ledger.frontiers import frontiers
from hourmark_etl.ledger.overrides import put_override, put_overrides
from hourmark_etl.model import Frontier
from hourmark_etl.recovery.first_hours import record_first_hours

POINTS = 40  # about as many as a step passes that closes an hour of each type


@dataclasses.dataclass
class PausedCloser:
    """A closer that stands still in the middle of a step."""

    thread: threading.Thread
    wake: threading.Event
    outcome: list[BaseException] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class DriverClock:
    """The closer's: the true one, and how far it runs ahead."""

    true: FakeClock
    ahead_ms: int = 0

    def now_ms(self) -> int:
        return self.true.now_ms() + self.ahead_ms

    def monotonic_s(self) -> float:
        return self.true.monotonic_s()

    def sleep(self, seconds: float) -> None:
        self.true.sleep(seconds)


class Metrics:
    """Counts nothing."""

    def count_closed_bucket(self, due_ms: int, manifest: Manifest) -> None:
        """See `hourmark_etl.closing.ports.ClosingMetrics`."""


class World:
    """One history.

    Every action takes a number from which it draws what it needs, so a history is a list of pairs.
    """

    def __init__(
        self,
        folder: Path,
        template: Path,
        *further: str,
        storage: MemoryStorage | SimulatedObjects | None = None,
    ) -> None:
        """`further`: aliases of sites beside the first. `storage`: in memory, with folders, unless
        another one is given.
        """
        self.clock = FakeClock(FIRST_HOUR.start_s * 1000 + 600_000)
        self.driver_clock = DriverClock(self.clock)
        self.seen: collections.Counter[str] = collections.Counter()
        # tests that name it know that it has folders
        self.storage = cast(MemoryStorage, storage or MemoryStorage())
        self.ledger = folder / f"{uuid.uuid4().hex}.sqlite"
        shutil.copy(template, self.ledger)
        self.further = further
        self.config = config_of(self.ledger, *further)
        self.database = open_ledger(self.config)
        self.producers = Producers(self.clock, self.seen, *further)
        self.pipeline = Pipeline(self.producers, self.storage, self.database, self.config)
        self.damages = Damages(self.storage, self.pipeline.losses, self.seen)
        self.judge = Judge(self.producers, self.pipeline.mirror, self.storage, self.pipeline.losses)
        self.ledgers = LedgerFaults(self)
        self.zombies: list[PausedCloser] = []
        self.start_closer()
        record_first_hours(self.storage, self.database, FIRST_HOUR.length_s)
        self.producers.report(0)

    def act(self, name: str, draw: int) -> None:
        """One action of a history, by its name; what must hold is checked each time: the judge has
        to see every state.
        """
        if name != "nothing":
            part = next(
                p
                for p in (self, self.producers, self.pipeline, self.damages, self.ledgers)
                if hasattr(p, name)
            )
            getattr(part, name)(draw)
        self.check()

    def check(self) -> None:
        """What must hold after every action."""
        self.judge.check()

    def end(self) -> None:
        """Let go of everything, whatever became of the history."""
        for zombie in self.zombies:
            zombie.wake.set()
            zombie.thread.join()
        self.closer_database.close()
        self.database.close()
        self.storage.forget()
        forget(self.ledger)
        self.ledgers.end()

    def start_closer(self) -> None:
        """A new closer on the same ledger; whoever was there loses at the lease."""
        self.points = FaultPoints()
        self.closer_database = PointedDatabase(self.database, self.points)
        database = self.closer_database
        ports = CloserDependencies(
            engine=pointed(self.engine(database), self.points, after=("prove", "compare", "write")),
            storage=pointed(
                self.storage,
                self.points,
                after=("rename_new", "write_new", "copy_file")
                if isinstance(self.storage, SimulatedObjects)
                else ("rename_new",),
            ),  # it happened, and nobody heard of it
            database=database,
            sites=lambda lease: self.pipeline.clusters(database, lease, self.driver_clock),
            progress=LedgerProgress(database, CLUSTER),
            restage=self.pipeline.restage,
            metrics=Metrics(),
            clock=self.driver_clock,
            executor=InlineExecutor,
        )
        self.closer = Closer(ports, self.config)

    def engine(self, database: Database) -> Engine:
        """What proves and writes."""
        faults = (
            "cleaned",
            "range read otherwise",
            "ledger lost",
            "older copy goes on",
            VALUE_CHANGED,
            *(f.name for f in FILE_FAULTS),
        )
        return ComparedEngine(
            self.storage, database, self.config, lambda: any(self.seen[name] for name in faults)
        )

    def close_step(self, _: int) -> int | None:
        """One poll of the closer; None while it waits. A kill brings a new closer."""
        try:
            outcome = self.closer.step()
        except Killed:
            self.seen["closer killed"] += 1
            self.points.disarm()
            self.closer_database.close()
            self.start_closer()
            return 0
        except Unavailable:
            self.seen["closer tries again later"] += 1
            return None
        return None if isinstance(outcome, Waiting) else outcome

    def kill_at(self, draw: int) -> None:
        """The closer is killed at a point of a step in which it may have something to close, or of
        a later one.
        """

        def kill() -> None:
            raise Killed

        self._all_staged()
        self.points.arm(1 + draw % POINTS, kill)
        self.close_step(draw)

    def go_on_at(self, draw: int) -> None:
        """In the middle of such a step, ranges arrive and are staged."""

        def go_on() -> None:
            r = random.Random(draw)
            self.producers.cut_range(r.getrandbits(32))
            for _ in range(r.randint(1, 3)):
                self.producers.send(r.getrandbits(32))
            self.pipeline.arrive()
            self.seen["staged in the middle of a step"] += 1

        self._all_staged()
        self.points.arm(1 + draw % POINTS, go_on)
        self.close_step(draw)

    def _all_staged(self) -> None:
        self.producers.report(0)
        self.pipeline.arrive()

    def pause(self, draw: int) -> None:
        """The closer takes a step and is paused in it, before its rename or at another point;
        another one takes over.
        """
        if len(self.zombies) >= 2:
            return
        paused, wake = threading.Event(), threading.Event()

        def stand_still() -> None:
            paused.set()
            wake.wait()

        self._all_staged()
        self.points.disarm()
        self.points.arm(1 + draw % POINTS, stand_still)
        closer, database, points = self.closer, self.closer_database, self.points
        zombie = PausedCloser(threading.Thread(target=lambda: None), wake)

        def step() -> None:
            try:
                closer.step()
            except BaseException as error:  # noqa: BLE001  # looked at when it has ended
                zombie.outcome.append(error)
            finally:
                paused.set()

        zombie.thread = threading.Thread(target=step, daemon=True)
        zombie.thread.start()
        paused.wait()
        points.disarm()
        if zombie.thread.is_alive() and not wake.is_set() and not zombie.outcome:
            self.zombies.append(zombie)
            self.seen["closer paused"] += 1
            self.start_closer()
            return
        zombie.thread.join()
        self._check_outcome(zombie)
        if zombie.outcome:
            database.close()
            self.start_closer()

    def wake(self, draw: int) -> None:
        """A paused closer goes on where it stood."""
        if not self.zombies:
            return
        zombie = self.zombies.pop(draw % len(self.zombies))
        zombie.wake.set()
        zombie.thread.join()
        self._check_outcome(zombie)
        self.seen[WOKEN] += 1

    def _check_outcome(self, zombie: PausedCloser) -> None:
        for error in zombie.outcome:
            if not isinstance(error, HourmarkError):
                raise error
            self.seen[f"woken closer: {type(error).__name__}"] += 1

    def tick(self, draw: int) -> None:
        """Time passes; never so much that a history outgrows some twelve hours."""
        if self.clock.now_ms() < (FIRST_HOUR.start_s + 8 * 3600) * 1000:
            self.clock.advance(60 * (5 + draw % 40))

    def flow(self, draw: int) -> None:
        """A calm moment: a service is live, what was reported is staged, and the closer looks."""
        self.producers.serve()
        self._all_staged()
        self.close_step(draw)

    def haste(self, draw: int) -> None:
        """A moment in which staging has not caught up, and the closer looks."""
        self.producers.report(0)
        self.pipeline.mirror_all(0)
        self.pipeline.stage(draw)
        self.close_step(draw)

    def central_forgets(self, draw: int) -> None:
        """The central cluster loses the end of some logs; the driver sees it at its next
        micro-batch, and says so on storage. Or the ledger is lost with them, and an older copy goes
        on.
        """
        topics = self.pipeline.lose_ends(draw)
        if draw % 2:
            self.ledgers.restore(draw)
        self.pipeline.look()
        self.ledgers.keep_checks(draw)
        if set(topics) - set(CONTROL):
            # a copy from before does not know what to stage again: see
            # docs/concepts/delivery-guarantees.md
            self.ledgers.end()

    def force(self, draw: int) -> None:
        """An operator will not wait any longer for the frontier hour of a type."""
        ready = [f for f in self.frontiers() if f.hour.end_ms <= self.clock.now_ms()]
        if ready:
            chosen = ready[draw % len(ready)]
            put_override(
                self.database,
                chosen.event_type,
                chosen.hour,
                "analysts cannot wait",
                "operator",
                self.clock.now_ms(),
            )

    def frontiers(self) -> list[Frontier]:
        """As the ledger has them."""
        return frontiers(self.database, FIRST_HOUR.length_s)

    def clean(self, draw: int) -> None:
        """Whatever nothing needs any more is deleted; every batch that was not committed is of a
        consumer that was replaced.
        """
        self.pipeline.consumer = self.database.acquire("consumer:default")
        self.closer_database.close()
        self.start_closer()
        cleaner = Cleaner(self.storage, self.database, self.config, self.clock)
        later_ms = draw % 3 * 6 * 24 * 3_600_000  # a clock by which files are old
        cleaned = cleaner.clean(self.database.acquire(CLOSER), self.clock.now_ms() + later_ms)
        self.seen["audit files cleaned"] += cleaned.audit_files
        self.pipeline.losses.unaudited |= bool(
            later_ms and cleaned.unaudited_files
        )  # by that clock no promise can come any more
        self.seen["cleaned"] += any(dataclasses.astuple(cleaned))
        self.closer_database.close()
        self.start_closer()

    def wake_all(self) -> None:
        """Nobody stands still any more."""
        self.points.disarm()
        while self.zombies:
            self.wake(0)

    def drain(self) -> None:
        """No new lines: everything that can arrive arrives, deadlines pass, an operator overrides
        what nothing else closes.
        """
        self.points.disarm()
        self.damages.bring_back_markers()
        self.pipeline.leaders_come_back()
        end_s = Hour.containing(self.clock.now_ms()).end_s
        for round_number in range(60):
            self.wake_all()
            self.producers.serve()
            self.producers.send_all(round_number)
            self.flow(0)
            for _ in range(50):
                if self.close_step(0) is None:
                    break
            else:
                raise Broken("the closer never comes to rest")
            self.check()
            if all(f.hour.start_s >= end_s for f in self.frontiers()):
                return
            self.clock.advance(20 * 60)
            self._override_conflicts()
            if round_number > 10:
                self._override()
        raise Broken(f"hangs: {self._open_hours()}")

    def _open_hours(self) -> list[tuple[object, ...]]:
        return [(f.event_type, str(f.hour), f.state.value, f.alarm) for f in self.frontiers()]

    def _override_conflicts(self) -> None:
        found, now_ms = conflicts(self.database), self.clock.now_ms()
        for f in self.frontiers():
            if format_blocking_conflicts(found, f) and f.hour.end_ms <= now_ms:
                put_override(
                    self.database, f.event_type, f.hour, "read in two ways", "operator", now_ms
                )
                self.seen["conflict overridden"] += 1

    def _override(self) -> None:
        # After a lost ledger, checks of the edge begin where storage tells of them.
        if not (
            self.pipeline.mirror.skipped
            or self.pipeline.losses
            or self.seen["ledger lost"]
            or self.seen[VALUE_CHANGED]
        ):
            raise Broken(f"an hour stays open, and nothing was lost: {self._open_hours()}")
        try:
            put_overrides(
                self.database,
                FIRST_HOUR.length_s,
                "records are lost",
                "operator",
                self.clock.now_ms(),
            )
            self.seen["forced"] += 1
        except UsageError:
            return  # not all hours have ended
