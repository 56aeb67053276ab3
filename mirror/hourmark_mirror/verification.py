"""`hourmark mirror verify`: has the mirror reached this cut, can a gap be excluded, are both sides equal.

The order is what makes it true: the cut (edge ends) first; then the positions, until they have reached it; then the target's
ends; then the edge's ends again, as everything on the target by then was at the edge before.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import random
from collections.abc import Iterable, Mapping, Sequence

from hourmark.clock import Clock
from hourmark.config import Config
from hourmark.errors import UsageError
from hourmark.kafka import Partition, TopicInfo
from hourmark.mirror_positions import ahead, gaps, reached, recreated
from hourmark.topics import events_topic
from hourmark_mirror.checks import Check, Checks
from hourmark_mirror.comparison import Comparison, compare
from hourmark_mirror.reading import SpanReader
from hourmark_mirror.sites import Sites

_LOG = logging.getLogger(__name__)

POLL_S = 0.2
PROGRESS_S = 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class Compared:
    """One topic-partition whose content was compared."""

    partition: Partition
    cut: int
    position: int | None
    comparison: Comparison


@dataclasses.dataclass(slots=True)
class Verdict:
    """What a check found; `alarms` are what is wrong besides contents, in words."""

    alarms: list[str]
    behind: list[str]
    compared: list[Compared]

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not (self.alarms or self.behind or any(c.comparison.faults for c in self.compared))


class Verification:
    """One check; `run` blocks until the cut is reached, at most `timeout_s`, and then for the comparison."""

    def __init__(self, config: Config, clock: Clock, *, topics: Sequence[str] = (), accept: bool = False) -> None:
        self._max_bytes = config.kafka.max_message_bytes
        self._clock = clock
        self._sites = Sites(config)
        self._edge, self._central = self._sites.edge, self._sites.central
        self._checks = Checks(config.mirror.work_dir, self._edge.cluster_id())
        self._accept = accept
        self._only = set(topics)
        self._topics = {t.name: t for t in self._sites.topics() if self._selected(t.name)}
        if topics and not self._topics and not any(self._selected(name) for name in self._checks.topics):
            raise UsageError(f"no mirrored topic at the edge is named {', '.join(topics)}; `hourmark mirror lag` lists them")

    def _selected(self, topic: str) -> bool:
        return not self._only or any(topic in (name, events_topic(name)) for name in self._only)

    def run(self, timeout_s: float, *, sample: int | None = None, seed: int = 0) -> Verdict:
        """Check the cut of now. `sample`: compare the contents of so many topic-partitions only, chosen by `seed`."""
        partitions = [Partition(t.name, p) for t in self._topics.values() for p in t.partitions]
        cut = self._edge.ends(partitions)
        starts = self._edge.starts(partitions)
        anew = [] if self._accept else self._recreated()
        suspect = [] if self._accept else [h for h in gaps(self._checks.positions, starts) if h.partition.topic not in anew]
        alarms = [self._anew_alarm(topic) for topic in anew] + [str(gap) for gap in suspect]
        trusted = [p for p in partitions if p.topic not in anew]
        behind, positions = self._wait({p: cut[p] for p in trusted}, starts, timeout_s)
        ends = self._edge.ends(trusted)
        alarms += [
            f"{p}: the mirror stands at {positions[p]}, past the edge's end {ends[p]}: stale, so nothing is copied"
            for p in ahead(ends, positions)
        ]
        chosen = trusted if sample is None else random.Random(seed).sample(trusted, min(sample, len(trusted)))  # noqa: S311
        compared, missing_topics = self._compare(sorted(chosen), cut, starts, positions)
        alarms += missing_topics
        self._remember(positions, {*anew, *(gap.partition.topic for gap in suspect)})
        return Verdict(alarms, behind, compared)

    def _recreated(self) -> list[str]:
        known = {name: topic_id for name, topic_id in self._checks.ids.items() if self._selected(name)}
        return recreated(known, {t.name: t.topic_id for t in self._topics.values()})

    def _anew_alarm(self, topic: str) -> str:
        before = self._checks.topics[topic]
        what = "was deleted and recreated" if topic in self._topics else "was deleted"
        known = ", ".join(f"{topic}-{p} up to {offset}" for p, offset in sorted(before.positions.items())) or "nothing"
        return (
            f"topic {topic} {what} at the edge since the last check; the mirror had copied: {known}; what came after may be lost"
        )

    def _wait(
        self, cut: Mapping[Partition, int], starts: Mapping[Partition, int], timeout_s: float
    ) -> tuple[list[str], Mapping[Partition, int]]:
        give_up_s = self._clock.monotonic_s() + timeout_s
        told_s = self._clock.monotonic_s()
        with contextlib.closing(self._sites.positions()) as reader:
            while True:
                positions = reader.refresh()
                behind = reached(cut, starts, positions)
                now_s = self._clock.monotonic_s()
                if not behind or now_s >= give_up_s:
                    return [str(b) for b in behind], positions
                if now_s - told_s >= PROGRESS_S:
                    told_s = now_s
                    _LOG.info("waiting for %d topic-partitions, such as %s", len(behind), behind[0])
                self._clock.sleep(POLL_S)

    def _compare(
        self,
        partitions: Sequence[Partition],
        cut: Mapping[Partition, int],
        starts: Mapping[Partition, int],
        positions: Mapping[Partition, int],
    ) -> tuple[list[Compared], list[str]]:
        remotes = self._sites.remote_of(partitions)
        absent = [f"{self._sites.remote(p)} does not exist on the central cluster" for p in partitions if p not in remotes]
        there = list(remotes.values())
        remote_ends, remote_starts = self._central.ends(there), self._central.starts(there)
        ends = self._edge.ends(partitions)
        retention_ms = self._retention_ms({p.topic for p in there})
        compared = []
        with (
            contextlib.closing(SpanReader(self._edge, self._max_bytes)) as source,
            contextlib.closing(SpanReader(self._central, self._max_bytes)) as target,
        ):
            for p, remote in remotes.items():
                _LOG.info("comparing %s", p)
                kept_ms = retention_ms.get(remote.topic, -1)
                result = compare(
                    source.read(p, starts[p], ends[p]),
                    target.read(remote, remote_starts[remote], remote_ends[remote]),
                    cut[p],
                    edge_was_trimmed=starts[p] > 0,
                    expired_before_ms=self._clock.now_ms() - kept_ms if kept_ms >= 0 else 0,
                )
                compared.append(Compared(p, cut[p], positions.get(p), result))
        return compared, absent

    def _retention_ms(self, topics: Iterable[str]) -> dict[str, int]:
        return {name: int(settings["retention.ms"]) for name, settings in self._central.topic_configs(topics).items()}

    def _remember(self, positions: Mapping[Partition, int], alarmed: set[str]) -> None:
        for info in self._topics.values():
            if info.name not in alarmed:
                self._checks.topics[info.name] = self._check_of(info, positions)
        if self._accept:
            for name in [n for n in self._checks.topics if self._selected(n) and n not in self._topics]:
                del self._checks.topics[name]
        self._checks.save()

    @staticmethod
    def _check_of(info: TopicInfo, positions: Mapping[Partition, int]) -> Check:
        found = {p: positions[Partition(info.name, p)] for p in info.partitions if Partition(info.name, p) in positions}
        return Check(info.topic_id, found)
