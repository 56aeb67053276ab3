"""What is looked at from outside: metrics over HTTP, Kafka's own ends, the NameNode's listings.

Nothing of Hourmark's state.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from tests.faults.chaos.flows import Flow
from tests.faults.chaos.settings import BUCKET_SECONDS, HOSTS
from tests.support.http_client import HTTP

from hourmark.clock import Clock
from hourmark.kafka.topic_names import events_topic
from hourmark_infra.stack.layout import METRICS
from hourmark_verify.judge.webhdfs import WebHdfsReader, hdfs_path

if TYPE_CHECKING:
    from tests.faults.chaos.world import World

_ANSWER_S: Final = 3.0
_LENGTH_MS: Final = BUCKET_SECONDS * 1000
SILENT = logging.getLogger(f"{__name__}.silent")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False


class Closings:
    """Which buckets stand closed, as the NameNode lists them: `first_seen` holds the Unix ms, by
    type and the bucket's end.
    """

    def __init__(self, hdfs: WebHdfsReader, root: str, types: Sequence[str], clock: Clock) -> None:
        self._hdfs, self._root, self._types, self._clock = hdfs, hdfs_path(root), types, clock
        self.first_seen: dict[tuple[str, int], int] = {}

    def look(self) -> Hashable:
        """List this hour's and the last one's folders; how many buckets are known by now."""
        now = dt.datetime.fromtimestamp(self._clock.now_ms() / 1000, dt.UTC)
        for name in self._types:
            for hour in (now - dt.timedelta(hours=1), now):
                folder = f"{self._root}/{name}/date={hour:%Y-%m-%d}/hour={hour:%H}"
                for entry in self._hdfs.list(folder):
                    minute = hour.replace(
                        minute=int(entry.name.removeprefix("minute=")), second=0, microsecond=0
                    )
                    end_ms = int(minute.timestamp()) * 1000 + _LENGTH_MS
                    self.first_seen.setdefault((name, end_ms), self._clock.now_ms())
        return len(self.first_seen)

    def closed_until_ms(self) -> int:
        """The end of the last bucket of the type that is furthest behind; 0 where one has none."""
        ends = dict.fromkeys(self._types, 0)
        for name, end_ms in [*self.first_seen]:
            ends[name] = max(ends[name], end_ms)
        return min(ends.values())


def metric(port: int, name: str) -> float:
    """The sum over all labels of one metric."""
    answer = HTTP.get(f"http://127.0.0.1:{port}/metrics", timeout=_ANSWER_S).raise_for_status()
    rows = [
        line.rpartition(" ")
        for line in answer.text.splitlines()
        if line.partition(" ")[0].partition("{")[0] == name
    ]
    if not rows:
        raise ValueError(f"no {name} is told")
    return sum(float(value) for *_, value in rows)


def _mirrored(world: World) -> Callable[[], Hashable]:
    """Ends of all mirrored topics of events."""
    alias = world.config.kafka.edge_alias
    admin = AdminClient(
        {"bootstrap.servers": world.central.settings.bootstrap, "log_level": 0}, logger=SILENT
    )
    wanted = {f"{alias}.{events_topic(name)}" for name in world.types}

    def ends() -> Hashable:
        topics = admin.list_topics(timeout=_ANSWER_S).topics
        asked = {
            TopicPartition(name, partition): OffsetSpec.latest()
            for name in wanted & topics.keys()
            for partition in topics[name].partitions
        }
        futures = admin.list_offsets(asked, request_timeout=_ANSWER_S)
        return tuple(
            sorted(
                (at.topic, at.partition, future.result().offset) for at, future in futures.items()
            )
        )

    return ends


def readers(
    world: World, posted: Callable[[], int], closings: Closings
) -> Mapping[Flow, Callable[[], Hashable]]:
    """How each flow is read."""
    etl = world.stack.layout.ports[METRICS]
    tailers = {
        flow: world.ports[host].tailer_metrics
        for flow, host in zip((Flow.TAILER_A, Flow.TAILER_B), HOSTS, strict=True)
    }

    def ranges(port: int) -> Callable[[], Hashable]:
        return lambda: metric(port, "hourmark_tailer_ranges_total")

    return {
        **{flow: ranges(port) for flow, port in tailers.items()},
        Flow.API: posted,
        Flow.MIRROR: _mirrored(world),
        Flow.STAGING: lambda: metric(etl, "hourmark_etl_events_staged_total"),
        Flow.CLOSING: closings.look,
    }
