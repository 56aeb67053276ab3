"""An ETL, its types and its hours: each hour's events come doubled, cut anew and late, and the
buckets are judged.
"""

from __future__ import annotations

import dataclasses
import time
import tomllib
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.bucket_judge import BucketJudge
from tests.support.crash import CrashOrder
from tests.support.delivery import DirectDelivery
from tests.support.etl import EtlRun
from tests.support.waiting import wait_for

from hourmark.config.groups import StorageSettings
from hourmark.config.toml_text import render_toml
from hourmark.kafka.clients import Cluster
from hourmark.records.hours import Hour
from hourmark.records.manifest import Manifest
from hourmark_infra.stack import LocalStack

WITHIN_S = (
    600.0  # a driver takes a quarter of a minute to begin, and many times that on a busy machine
)
REPORT_S = 5.0
ON_TIME = 50  # events of an hour and type
EVENTS = ON_TIME + 1  # and one of the first hour
DUPLICATES = 2 * ON_TIME


@dataclasses.dataclass(kw_only=True)
class Scene:
    """One run, its types, and the hours begun so far; none of them is before `first`.

    A host of its own is awaited: what other tests on the same stack report at the same time closes
    nothing here.
    """

    run: EtlRun
    types: tuple[str, ...]
    first: Hour
    source: str
    hours: list[Hour] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.delivery = DirectDelivery(self.run.config)
        self.judge = BucketJudge(self.run.storage)
        self.edge = Cluster(self.run.config.kafka.edge, "edge")
        self.host_id, self.service_id = uuid.uuid4().hex, uuid.uuid4().hex
        self.caught_up(self.first.start_s * 1000)

    def caught_up(self, at_ms: int, *, goodbye: bool = False) -> None:
        """The scene's host, and the delivery service, report that they have read and acknowledged
        everything until then.
        """
        self._caught_up_ms, self._reported_s = at_ms, time.monotonic()
        self.delivery.report(at_ms, host_id=self.host_id, source=self.source, goodbye=goodbye)
        self.delivery.report(at_ms, host_id=self.service_id, goodbye=goodbye)

    @property
    def next_hour(self) -> Hour:
        """The one to begin next."""
        return self.hours[-1].next() if self.hours else self.first

    def begin_hour(
        self, *, without: Collection[str] = (), skipping: int = 0, events: int = ON_TIME
    ) -> Hour:
        """Deliver the next hour's events: twice, cut anew, and one of the first hour, which is late
        once that is closed; then everybody has caught up.

        `skipping`: so many hours before it stay without events. `events`: of each type, beside the
        late one.
        """
        for _ in range(skipping):
            self.hours.append(self.next_hour)
        hour = self.next_hour
        self.hours.append(hour)
        for event_type in sorted(set(self.types) - set(without)):
            on_time = self.delivery.make(
                event_type, [hour.start_s * 1000 + 100 * n % 60_000 for n in range(events)]
            )
            # Not before the first hour: the scene's reports never catch up with a back-fill.
            late = self.delivery.make(event_type, [self.first.start_s * 1000 + len(self.hours)])
            for sent in (on_time, on_time, self.delivery.recut(on_time), late):
                self.delivery.deliver(sent)
            self.judge.promised(on_time, late, by=hour)
        self.caught_up(hour.end_ms)
        return hour

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for it, saying `what` was awaited, while the delivery service and the host go on
        reporting, as real ones do.
        """

        def holds() -> bool:
            if time.monotonic() - self._reported_s > REPORT_S:
                self.caught_up(self._caught_up_ms)
            return condition()

        wait_for(holds, f"{what} (see {self.run.log})", WITHIN_S)

    def crashed(self, crash: CrashOrder) -> None:
        """Wait until the order is carried out."""
        self.wait(lambda: self.run.took(crash), str(crash))

    def ended(self) -> None:
        """Wait until the driver has ended by itself, with the exit code of what stops it."""
        self.wait(lambda: not self.run.running(), "the driver ends")
        assert self.run.exit_code() == 1, self.run.log

    def says(self, text: str) -> None:
        """Wait until the driver says so, a driver that ends by itself being started again."""

        def said() -> bool:
            self.run.revive()
            return self.run.logged(text)

        self.wait(said, f"{text!r} is said")

    def closed(
        self, hour: Hour, *, without: Collection[str] = (), by: EtlRun | None = None
    ) -> Manifest:
        """Wait until the hour is closed for all types, reviving a driver that ends by itself, and
        judge all buckets.
        """
        types, run = sorted(set(self.types) - set(without)), by or self.run

        def all_stand() -> bool:
            run.revive()
            return all(run.manifest(t, hour) is not None for t in types)

        self.wait(all_stand, f"{hour} of {types} closed")
        self.content_is_as_promised(without=without)
        last = run.manifest(types[0], hour)
        assert last is not None
        return last

    def content_is_as_promised(self, *, without: Collection[str] = ()) -> None:
        """Judge all buckets of the hours begun so far that stand."""
        types = sorted(set(self.types) - set(without))
        standing = [
            h for h in self.hours if all(self.run.manifest(t, h) is not None for t in types)
        ]
        if standing:
            found = self.judge.poll(types, standing)
            assert not found, f"{len(found)} findings (see {self.run.log}):\n" + "\n".join(
                found[:20]
            )


@contextmanager
def scene(
    stack_config: Path,
    folder: Path,
    names: Collection[str],
    *,
    cluster: str = "central",
    crashing: bool = False,
    root: str | None = None,
    etl: Mapping[str, Any] | None = None,
    minutes_ago: int = 60,
    make: Callable[..., EtlRun] = EtlRun,
) -> Iterator[Scene]:
    """A scene whose first hour began so long ago, its driver started; types are unique, as topics
    of a used stack stay.

    `make`: takes what `EtlRun` takes, and may start it in another way.
    """
    unique = uuid.uuid4().hex[:8]
    types = tuple(f"{name}-{unique}" for name in names)
    first = Hour.containing(time.time_ns() // 1_000_000 - 60_000 * minutes_ago, 60)
    run = make(
        stack_config,
        folder,
        list(types),
        first,
        root=root,
        etl=etl,
        cluster=cluster,
        crashing=crashing,
        source=f"app-{unique}",
    )
    made = Scene(run=run, types=types, first=first, source=f"app-{unique}")
    with run:
        yield made
    made.caught_up(made.next_hour.start_s * 1000, goodbye=True)


@contextmanager
def scene_on(storage: StorageSettings, stack: LocalStack, folder: Path) -> Iterator[Scene]:
    """A scene with the stack's Kafka and another storage; an hour was closed."""
    settings = tomllib.loads(stack.layout.config_file.read_text())
    settings["storage"] = storage.model_dump(mode="json", exclude_none=True)
    file = folder / "stack.toml"
    file.write_text(render_toml(settings))
    with scene(file, folder / "run", ("one", "two")) as made:
        made.closed(made.begin_hour())
        yield made
