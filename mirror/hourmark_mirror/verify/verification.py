"""`hourmark mirror verify`: checks that all edge records were copied, without gaps or differences.

The result depends on the order of reads. The edge's end offsets are read first; they define the
cut, up to which records must be copied. The positions are then read repeatedly until they reach the
cut. After each read, the edge's log starts are read, to detect gaps that retention causes in the
meantime. The target's end offsets follow. The edge's end offsets are then read again, because all
records on the target existed at the edge before. Topic ids are read at the beginning and at the
end.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from hourmark.clock import Clock
from hourmark.config.loading import Config
from hourmark.errors import UsageError
from hourmark.kafka.clients import Partition
from hourmark.kafka.mirror import find_gaps, partitions_ahead, partitions_behind, recreated_topics
from hourmark.kafka.topic_names import events_topic
from hourmark.process.alarms import Alarm, AlarmName
from hourmark_mirror.settings.mirror_sites import MirrorSites
from hourmark_mirror.verify.content_comparison import ComparedPartition, ContentComparer
from hourmark_mirror.verify.verification_state import TopicCheckpoint, VerificationState

_LOG = logging.getLogger(__name__)

POLL_S = 0.2
PROGRESS_S = 5.0
_HOLDING = (
    AlarmName.TOPIC_RECREATED,
    AlarmName.OVERTAKEN,
    AlarmName.STALE_OFFSETS,
)  # the next verification needs the earlier positions


class VerificationResult(NamedTuple):
    """Findings of a check that the central cluster has an exact copy of all edge records.

    Attributes:
        alarms: New alarms, and earlier alarms that no operator has accepted. New differences
            between records are in `compared` instead.
        behind: Text for each topic-partition that the mirror did not copy in time.
        compared: Comparison of the records of each compared topic-partition.
        left_out: Number of topic-partitions that were not compared because only a sample was
            requested.
    """

    alarms: list[Alarm]
    behind: list[str]
    compared: list[ComparedPartition]
    left_out: int = 0

    @property
    def ok(self) -> bool:
        """Return whether the verification succeeded.

        True if at least one topic-partition was compared, and there are no alarms, no
        topic-partitions that are behind, and no faulty records.
        """
        return not (
            self.alarms or self.behind or any(c.comparison.faults for c in self.compared)
        ) and bool(self.compared)


class Verification:
    """A single check that the central cluster has an exact copy of all edge records.

    It covers all edge records that exist when it starts. Call `run` once. The call blocks while the
    mirror catches up and the records are compared.
    """

    def __init__(
        self, config: Config, clock: Clock, *, topics: Sequence[str], accept: bool
    ) -> None:
        """Load the state of the previous verification and list the topics to verify.

        Args:
            config: Configuration with both clusters and `mirror.work_dir`.
            clock: Source of time and sleep.
            topics: Topic or event type names to verify; empty for all.
            accept: Whether to accept all known alarms, so that only new findings are reported.

        Raises:
            UsageError: No mirrored topic has one of the given names, or the state file cannot be
                used.
            Unavailable: A cluster does not respond.
        """
        self._max_bytes = config.kafka.max_message_bytes
        self._clock = clock
        self._sites = MirrorSites(config)
        self._edge = self._sites.edge
        self._checks = VerificationState(config.mirror.work_dir, self._edge.cluster_id())
        self._accept = accept
        self._only = set(topics)
        self._topics = {t.name: t for t in self._sites.topics() if self._selected(t.name)}
        if (
            topics
            and not self._topics
            and not any(self._selected(name) for name in self._checks.topics)
        ):
            raise UsageError(
                f"no mirrored topic at the edge is named {', '.join(topics)}; `hourmark "
                "mirror lag` lists the mirrored topics"
            )

    def _selected(self, topic: str) -> bool:
        return not self._only or any(topic in (name, events_topic(name)) for name in self._only)

    def run(
        self,
        timeout_s: float,
        *,
        sample: int | None = None,
        seed: int = 0,
        report: Callable[[VerificationResult], object] = lambda _: None,
    ) -> VerificationResult:
        """Wait until the mirror has copied all current edge records, then compare both clusters.

        If the mirror does not copy some topic-partitions within `timeout_s`, the result lists them;
        no error is raised.

        Args:
            timeout_s: Maximum seconds to wait for the mirror. The comparison takes additional time.
            sample: Number of randomly chosen topic-partitions to compare; None for all.
            seed: Seed of the random choice.
            report: Called with the result before the state is saved, because saving may fail.

        Returns:
            The alarms, the topic-partitions that are behind, and the comparison of each
            topic-partition.

        Raises:
            UsageError: The state file cannot be written.
            Unavailable: A cluster does not respond.
        """
        partitions = [Partition(t.name, p) for t in self._topics.values() for p in t.partitions]
        cut = self._edge.ends(partitions)
        recreated = recreated_topics(
            self._known_ids(), {t.name: t.topic_id for t in self._topics.values()}
        )
        found = [
            Alarm(AlarmName.TOPIC_RECREATED, topic, self._recreated_text(topic), topic)
            for topic in recreated
        ]
        if self._accept:
            self._checks.recreated |= {
                t: self._topics[t].topic_id for t in recreated if t in self._topics
            }
        trusted = [p for p in partitions if self._accept or p.topic not in recreated]
        behind, positions = self._wait({p: cut[p] for p in trusted}, timeout_s)
        starts = self._edge.starts(
            trusted
        )  # read after the positions, to detect retention that passed the last known ones
        found += self._gaps({p: start for p, start in starts.items() if p.topic not in recreated})
        found = self._without_reported([*found, *self._only_central()])
        found += self._stale(trusted, positions)
        remotes = self._sites.existing_remotes(sorted(trusted))
        chosen = remotes if sample is None else _sampled(remotes, sample, seed)
        compared = ContentComparer(
            self._sites, self._clock, self._max_bytes, chosen, self._accepted_as_recreated()
        ).compare(cut, positions)
        found += [alarm for one in compared for alarm in _faults(one)]
        found += self._recreated_meanwhile()
        alarms = [
            *self._missing(trusted, remotes),
            *self._update_state(found, {**starts, **positions}),
        ]
        result = VerificationResult(alarms, behind, compared, len(remotes) - len(chosen))
        report(result)
        self._checks.save()
        return result

    def _known_ids(self) -> dict[str, str]:
        return {
            name: topic_id for name, topic_id in self._checks.ids.items() if self._selected(name)
        }

    def _accepted_as_recreated(self) -> list[str]:
        # Topics that have been recreated again since an operator accepted it are not included.
        accepted = self._checks.recreated
        return [name for name, t in self._topics.items() if accepted.get(name) == t.topic_id]

    def _recreated_text(self, topic: str) -> str:
        what = "was deleted and recreated" if topic in self._topics else "was deleted"
        before = self._checks.topics.get(topic)
        positions = sorted(before.positions.items()) if before else []
        known = ", ".join(f"{topic}-{p} up to {offset}" for p, offset in positions) or "nothing"
        return (
            f"topic {topic} {what} at the edge since the last check; the mirror had copied: "
            f"{known}; later records may be lost"
        )

    def _wait(
        self, cut: Mapping[Partition, int], timeout_s: float
    ) -> tuple[list[str], Mapping[Partition, int]]:
        logged_s = self._clock.monotonic_s()
        give_up_s = logged_s + timeout_s
        with contextlib.closing(self._sites.positions()) as reader:
            while True:
                positions = reader.refresh()
                behind = partitions_behind(cut, self._edge.starts(list(cut)), positions)
                now_s = self._clock.monotonic_s()
                if not behind or now_s >= give_up_s:
                    return [str(b) for b in behind], positions
                if now_s - logged_s >= PROGRESS_S:
                    logged_s = now_s
                    _LOG.info("waiting for %d topic-partitions, such as %s", len(behind), behind[0])
                self._clock.sleep(POLL_S)

    def _gaps(self, starts: Mapping[Partition, int]) -> list[Alarm]:
        found = find_gaps(self._checks.positions, starts)
        return [
            Alarm(AlarmName.OVERTAKEN, str(gap.partition), str(gap), gap.partition.topic)
            for gap in found
        ]

    def _stale(
        self, partitions: Sequence[Partition], positions: Mapping[Partition, int]
    ) -> list[Alarm]:
        ends = self._edge.ends(partitions)
        text = (
            "{}: the mirror's position {} is stale: it is past the edge's log end {}, so nothing is "
            "copied"
        )
        stale = partitions_ahead(ends, positions)
        return [
            Alarm(AlarmName.STALE_OFFSETS, str(p), text.format(p, positions[p], ends[p]), p.topic)
            for p in stale
        ]

    def _missing(
        self, partitions: Iterable[Partition], remotes: Mapping[Partition, Partition]
    ) -> list[Alarm]:
        text = "{} does not exist on the central cluster"
        missing = [p for p in sorted(partitions) if p not in remotes]
        return [
            Alarm(
                AlarmName.REMOTE_MISSING,
                str(p),
                text.format(self._sites.remote_partition(p)),
                p.topic,
            )
            for p in missing
        ]

    def _only_central(self) -> list[Alarm]:
        text = (
            "{} exists on the central cluster but not at the edge: the mirror did not create it, "
            "or it was deleted at the edge"
        )
        found = [
            Alarm(AlarmName.ONLY_CENTRAL, what, text.format(what), topic)
            for topic, what in self._sites.list_central_only()
            if self._selected(topic) and what not in self._checks.accepted
        ]
        if self._accept:
            self._checks.accepted |= {alarm.subject for alarm in found}
        return found

    def _without_reported(self, found: Sequence[Alarm]) -> list[Alarm]:
        return [alarm for alarm in found if not (self._accept and alarm in self._checks.alarms)]

    def _recreated_meanwhile(self) -> list[Alarm]:
        ids = {t.name: t.topic_id for t in self._sites.topics()}
        changed = recreated_topics({name: t.topic_id for name, t in self._topics.items()}, ids)
        return [
            Alarm(AlarmName.TOPIC_RECREATED, topic, self._recreated_text(topic), topic)
            for topic in changed
        ]

    def _update_state(
        self, found: Sequence[Alarm], offsets: Mapping[Partition, int]
    ) -> list[Alarm]:
        # Alarms about differing contents are not returned, because faulty records are reported separately.
        if self._accept:
            self._checks.alarms = [a for a in self._checks.alarms if not self._selected(a.topic)]
            active = list(found)
            for name in [
                n for n in self._checks.topics if self._selected(n) and n not in self._topics
            ]:
                del self._checks.topics[name]
        else:
            active = [
                alarm for alarm in self._checks.raise_alarms(found) if self._selected(alarm.topic)
            ]
        # A gap can be accepted; a stale position remains an error.
        holding = (AlarmName.STALE_OFFSETS,) if self._accept else _HOLDING
        held = {alarm.topic for alarm in active if alarm.name in holding}
        for name in self._topics.keys() - held:
            info = self._topics[name]
            positions = {p: at for p in info.partitions if (at := offsets.get(Partition(name, p)))}
            self._checks.topics[name] = TopicCheckpoint(info.topic_id, positions)
        by_record = {
            (alarm.name, alarm.subject)
            for alarm in found
            if alarm.name == AlarmName.CONTENTS_DIFFER
        }
        return [alarm for alarm in active if (alarm.name, alarm.subject) not in by_record]


def _sampled(
    remotes: Mapping[Partition, Partition], count: int, seed: int
) -> dict[Partition, Partition]:
    chosen = random.Random(seed).sample(sorted(remotes), min(count, len(remotes)))  # noqa: S311
    return {p: remotes[p] for p in sorted(chosen)}


def _faults(compared: ComparedPartition) -> list[Alarm]:
    p, faults, spans = compared.partition, compared.comparison.faults, compared.comparison.spans
    if not compared.settled:
        return [
            Alarm(
                AlarmName.NOT_COMPARED,
                str(p),
                f"{p}: not compared, because a log start moved during each attempt",
                p.topic,
            )
        ]
    if not faults:
        return []
    first = next((span.edge_first for span in spans if span.edge_first is not None), None)
    what = ", ".join(f"{count} {kind}" for kind, count in sorted(faults.items()))
    text = (
        f"{p}: {what}, the first at edge offset {first}; found earlier and not accepted (--accept)"
    )
    return [Alarm(AlarmName.CONTENTS_DIFFER, str(p), text, p.topic)]
