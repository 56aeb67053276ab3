"""`hourmark mirror verify`: has the mirror reached this cut, can a gap be excluded, are both sides equal.

The order is what makes it true: the cut (edge ends) first; then the positions, until they have reached it; then the target's
ends; then the edge's ends again, as everything on the target by then was at the edge before.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hourmark.clock import Clock
from hourmark.config import Config
from hourmark.errors import UsageError
from hourmark.kafka import Partition
from hourmark.mirror_positions import OffsetGap, ahead, gaps, reached, recreated
from hourmark.topics import events_topic
from hourmark_mirror.checks import Check, Checks
from hourmark_mirror.comparison import Comparison, compare
from hourmark_mirror.reading import read_span, span_reader
from hourmark_mirror.sites import Sites

_LOG = logging.getLogger(__name__)

POLL_S = 0.2
PROGRESS_S = 5.0


class Compared(NamedTuple):
    """One topic-partition whose content was compared."""

    partition: Partition
    cut: int
    position: int | None
    comparison: Comparison


class Verdict(NamedTuple):
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

    def __init__(self, config: Config, clock: Clock, *, topics: Sequence[str], accept: bool) -> None:
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
        anew, suspect = ([], []) if self._accept else self._doubtful(starts)
        alarms = [*map(self._anew_alarm, anew), *map(str, suspect)]
        trusted = [p for p in partitions if p.topic not in anew]
        behind, positions = self._wait({p: cut[p] for p in trusted}, starts, timeout_s)
        ends = self._edge.ends(trusted)
        alarms += [
            f"{p}: the mirror stands at {positions[p]}, past the edge's end {ends[p]}: stale, so nothing is copied"
            for p in ahead(ends, positions)
        ]
        if sample is not None:
            trusted = random.Random(seed).sample(trusted, min(sample, len(trusted)))  # noqa: S311
        remotes = self._sites.remote_of(sorted(trusted))
        alarms += [f"{self._sites.remote(p)} does not exist on the central cluster" for p in sorted(trusted) if p not in remotes]
        compared = self._compare(remotes, cut, starts, positions)
        self._remember(positions, {*anew, *(gap.partition.topic for gap in suspect)})
        return Verdict(alarms, behind, compared)

    def _doubtful(self, starts: Mapping[Partition, int]) -> tuple[list[str], list[OffsetGap]]:
        """Topics recreated since the last check, and gaps that cannot be excluded in the others."""
        known = {name: topic_id for name, topic_id in self._checks.ids.items() if self._selected(name)}
        anew = recreated(known, {t.name: t.topic_id for t in self._topics.values()})
        return anew, [gap for gap in gaps(self._checks.positions, starts) if gap.partition.topic not in anew]

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
        told_s = self._clock.monotonic_s()
        give_up_s = told_s + timeout_s
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
        remotes: Mapping[Partition, Partition],
        cut: Mapping[Partition, int],
        starts: Mapping[Partition, int],
        positions: Mapping[Partition, int],
    ) -> list[Compared]:
        there = list(remotes.values())
        remote_ends, remote_starts = self._central.ends(there), self._central.starts(there)
        ends = self._edge.ends(list(remotes))
        configs = self._central.topic_configs({p.topic for p in there})
        compared = []
        with (
            contextlib.closing(span_reader(self._edge, self._max_bytes)) as source,
            contextlib.closing(span_reader(self._central, self._max_bytes)) as target,
        ):
            for p, remote in remotes.items():
                _LOG.info("comparing %s", p)
                kept_ms = int(configs[remote.topic]["retention.ms"])
                result = compare(
                    read_span(source, p, starts[p], ends[p]),
                    read_span(target, remote, remote_starts[remote], remote_ends[remote]),
                    cut[p],
                    edge_was_trimmed=starts[p] > 0,
                    expired_before_ms=self._clock.now_ms() - kept_ms if kept_ms >= 0 else 0,
                )
                compared.append(Compared(p, cut[p], positions.get(p), result))
        return compared

    def _remember(self, positions: Mapping[Partition, int], alarmed: set[str]) -> None:
        for name in self._topics.keys() - alarmed:
            info = self._topics[name]
            stood = {p: positions[Partition(name, p)] for p in info.partitions if Partition(name, p) in positions}
            self._checks.topics[name] = Check(info.topic_id, stood)
        if self._accept:
            for name in [n for n in self._checks.topics if self._selected(n) and n not in self._topics]:
                del self._checks.topics[name]
        self._checks.save()
