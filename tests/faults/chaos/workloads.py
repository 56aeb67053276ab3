"""Workloads by name: each writes, or posts, until it is stopped, and says what it wrote.

Any of them goes with any fault.

Lines are stamped with the time of their writing; some are stamped minutes earlier, as of an
application that held them back: these alone may be late. A line whose minute ended before it was
handed to the file may be, too, and is counted.
"""

from __future__ import annotations

import dataclasses
import json
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from tests.faults.chaos.settings import (
    API_TYPE,
    BUCKET_SECONDS,
    EVENTS_SOURCE,
    HOSTS,
    KINDS_SOURCE,
    kind_names,
)
from tests.support.api_traffic import ApiTraffic

from hourmark.clock import Clock
from hourmark_verify.demo.log_lines import line_renderer, structured_lines
from hourmark_verify.demo.traffic import RecordedLog, ScheduledLine
from hourmark_verify.judge.expectations import ApiEvent

if TYPE_CHECKING:
    from tests.faults.chaos.world import World

TICK_S: Final = 0.05
ROTATED_EACH_S: Final = 20.0
LATE_SHARE: Final = 0.02
LATE_MS: Final = 3 * BUCKET_SECONDS * 1000
_NO_END: Final = 100_000_000  # lines; a workload ends when it is stopped


class Log(NamedTuple):
    """A file that grows, on which host, under which source."""

    host: str
    source: str
    log: RecordedLog


class Workload(Protocol):
    """One at work."""

    @property
    def logs(self) -> list[Log]:
        """Files that it writes."""

    @property
    def posted(self) -> list[ApiEvent]:
        """What was acknowledged to it over HTTP."""

    @property
    def written(self) -> int:
        """Lines and events so far."""

    @property
    def may_be_late(self) -> int:
        """Lines that had no claim to the bucket of their time any more when they were written."""

    def start(self) -> None: ...
    def stop(self) -> None:
        """Write no more; all that was posted is acknowledged afterwards."""


class Files:
    """Writes lines at a rate, in a thread, into one log each of some hosts in turn; rotates each
    now and then, in two ways.
    """

    def __init__(
        self, logs: list[Log], lines: Iterator[ScheduledLine], rate: float, seed: int, clock: Clock
    ) -> None:
        self.logs, self.posted = logs, list[ApiEvent]()
        self.written = self.may_be_late = 0
        self._lines, self._rate, self._clock, self._chance = lines, rate, clock, random.Random(seed)
        self._failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"files-{logs[0].source}", daemon=True
        )

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; raises what ended it early, if anything did."""
        self._stop.set()
        self._thread.join()
        for log in self.logs:
            log.log.close()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            began_s, rotations = self._clock.monotonic_s(), 0
            while not self._stop.wait(TICK_S):
                passed_s = self._clock.monotonic_s() - began_s
                for host in range(len(self.logs)):
                    self._write(self.logs[host].log, int(passed_s * self._rate) - self.written)
                if passed_s >= (rotations + 1) * ROTATED_EACH_S:
                    rotations += 1
                    log = self.logs[rotations % len(self.logs)].log
                    self._chance.choice((log.rotate, log.copy_and_truncate))()
        except BaseException as error:  # noqa: BLE001  # handed to who stops it
            self._failure = error

    def _write(self, log: RecordedLog, due: int) -> None:
        """About a share of what is due: which host writes a line is nobody's business."""
        content, broken, first_ms = bytearray(), list[int](), self._clock.now_ms()
        count, late = self._chance.randint(0, max(due, 0)), 0
        for _ in range(count):
            line = next(self._lines)
            if line.broken:
                broken.append(len(content))
            held_back = self._chance.random() < LATE_SHARE
            late += held_back
            content += line.render(self._clock.now_ms() - held_back * LATE_MS) + b"\n"
        log.append(content, broken)
        self.written += count
        minute_ms = BUCKET_SECONDS * 1000
        self.may_be_late += (
            count if first_ms // minute_ms != self._clock.now_ms() // minute_ms else late
        )


@dataclasses.dataclass
class Posting:
    """A program that posts over HTTP to both services, by links of its own, and some events
    twice.
    """

    world: World
    seed: int

    def __post_init__(self) -> None:
        self.logs, self.posted, self.may_be_late = list[Log](), list[ApiEvent](), 0
        addresses = [f"http://127.0.0.1:{self.world.links[f'api-{host}'].port}" for host in HOSTS]
        self._traffic = ApiTraffic(
            addresses,
            API_TYPE,
            self.posted,
            timeout_s=10.0,
            twice=0.1,
            observed=True,
            seed=self.seed,
        )

    @property
    def written(self) -> int:
        """Those that were answered."""
        return len(self.posted)

    def start(self) -> None:
        """Begin."""
        self._traffic.start()

    def stop(self) -> None:
        """Once the last one is acknowledged."""
        self._traffic.stop()


def _files(
    world: World, source: str, lines: Iterator[ScheduledLine], rate: float, seed: int
) -> Files:
    logs = [
        Log(host, source, RecordedLog(world.logs / host / source / "player.log")) for host in HOSTS
    ]
    return Files(logs, lines, rate, seed, world.clock)


def _events(world: World, rate: int, seed: int) -> Workload:
    """Two structured types, 7 to 3, and lines that are broken in every way."""
    return _files(
        world,
        EVENTS_SOURCE,
        structured_lines(_NO_END, seed, broken_at_least_each=rate * 10),
        0.9 * rate,
        seed,
    )


def _kinds(world: World, rate: int, seed: int) -> Workload:
    """Many small types."""
    names, chance = kind_names(world.kinds), random.Random(seed)
    number = iter(range(_NO_END))

    def line() -> ScheduledLine:
        return ScheduledLine(
            0.0,
            line_renderer(
                "kinds", chance.choice(names), json.dumps({"number": next(number)}).encode()
            ),
        )

    return _files(world, KINDS_SOURCE, iter(line, None), 0.1 * rate, seed)


def _api(world: World, rate: int, seed: int) -> Workload:
    """A program that posts."""
    return Posting(world, seed)


WORKLOADS: Final[Mapping[str, Callable[[World, int, int], Workload]]] = {
    "events": _events,
    "kinds": _kinds,
    "api": _api,
}
