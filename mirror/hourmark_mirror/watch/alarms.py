"""Derives alarms from one observation and the watch state, as pure functions.

Alarms that may mean lost events (`LOSSES`) persist until an operator accepts them, because
retention deletes evidence and a recreated topic outgrows a stale position. All other alarms end
once an observation no longer shows their cause.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from hourmark.kafka.clients import Partition
from hourmark.kafka.mirror import (
    CONNECTOR,
    find_gaps,
    partitions_ahead,
    partitions_behind,
    recreated_topics,
)
from hourmark.process.alarms import Alarm, AlarmName
from hourmark_mirror.watch.observation import (
    MirrorObservation,
    PartitionState,
    TopicState,
    UnsampledRange,
    WatchState,
)

LOSSES: Final = (
    AlarmName.OVERTAKEN,
    AlarmName.TOPIC_RECREATED,
    AlarmName.STALE_OFFSETS,
    AlarmName.TARGET_TRUNCATED,
    AlarmName.CONTENTS_DIFFER,
)
# time without progress: with an observation every ten seconds, the alarm comes within a minute
STALL_MS: Final = 40_000
MISSING_WORKER_MS: Final = 20_000  # longer than the restart of a worker takes
# Observations further apart do not show whether a position moved in between.
BLIND_MS: Final = 60_000


class AlarmLimits(NamedTuple):
    """Thresholds that determine when the alarms of a mirror are raised.

    Attributes:
        retention_hours: An alarm is raised if retention may delete an uncopied record within this
            many hours, or within half of the topic's retention if that is shorter.
        expected_s: For each edge topic, the maximum number of seconds between two records. Topics
            that are absent have no limit.
        workers: Expected number of MirrorMaker 2 workers. An alarm is raised if fewer are running;
            0 disables the alarm.
    """

    retention_hours: float
    expected_s: Mapping[str, float]
    workers: int = 0


class TopicVerification(NamedTuple):
    """Progress in verifying the copy of one topic.

    `hourmark mirror watch` compares randomly chosen records of both clusters.

    Attributes:
        through_ms: Time up to which the topic is verified, in Unix milliseconds. Records written
            before this time were copied.
        compared: Number of records that were compared.
        passed: Number of offsets in the ranges from which these records were chosen.
    """

    through_ms: int
    compared: int
    passed: int


class UnverifiedReason(StrEnum):
    """Reason why samples have not verified the copy of a topic yet.

    The value of each member is a phrase for users.

    Attributes:
        LOSS: Records of the topic were lost, and no operator has accepted the loss.
        NO_REMOTE: The topic does not exist on the target cluster.
        NOT_COMPARED: A partition has new records, but none of its records has been compared yet.
        NOTHING_NEW: No record has been written since the first observation.
    """

    LOSS = "a loss of its records was not accepted"
    NO_REMOTE = "it has no remote topic"
    NOT_COMPARED = "a partition has new records, but none was compared yet"
    NOTHING_NEW = "no record was written since the first observation"


class WatchResult(NamedTuple):
    """Active alarms of a mirror, and the verification of its topics, after one observation.

    Each topic is a key of either `verified` or `unverified`.

    Attributes:
        alarms: All active alarms. Alarms about lost records stay active until an operator accepts
            them.
        state: State to pass to the next evaluation.
        verified: Maps each verified edge topic to the progress of its verification.
        unverified: Maps each other edge topic to the reason why it is not verified.
    """

    alarms: list[Alarm]
    state: WatchState
    verified: Mapping[str, TopicVerification]
    unverified: Mapping[str, UnverifiedReason]


def evaluate_alarms(
    observation: MirrorObservation, before: WatchState, limits: AlarmLimits, *, accept: bool = False
) -> WatchResult:
    """Determine the active alarms of a mirror, and the watch state for the next observation.

    The function has no side effects. The caller stores the returned state and passes it to the next
    call as `before`.

    Args:
        observation: Current state of both clusters.
        before: Stored state after the previous observation; an empty `WatchState` for the first
            one.
        limits: Thresholds of the alarms.
        accept: Whether to discard earlier alarms about lost records. A loss is still reported if
            its cause persists or if it occurred after the previous observation.

    Returns:
        Alarms sorted by name and subject, the new state, and the verified and unverified topics.
    """
    still, few_since_ms = (
        stalled_partitions(observation, before),
        _workers_missing_since_ms(observation, before, limits),
    )
    checks: tuple[Callable[[], Iterator[Alarm]], ...] = (
        lambda: _recreated(observation, before),
        lambda: _overtaken(observation, before),
        lambda: _stale(observation),
        lambda: _truncated(observation, before),
        lambda: _different(observation),
        lambda: _missing(observation),
        lambda: _near(observation, limits),
        lambda: _blocked(observation, still),
        lambda: _stopped(observation, still),
        lambda: _few(observation, few_since_ms, limits),
        lambda: _quiet(observation, limits),
    )
    found = {(a.name, a.subject): a for check in checks for a in check()}
    if accept:
        known = _passed_gap_alarms(observation, before)
        found, before = (
            {key: a for key, a in found.items() if a not in known},
            dataclasses.replace(before, standing=()),
        )
    # Keep the first text of a loss, because its evidence may be deleted. A gap that is found again
    # gets its new text, because it may have grown.
    kept = {
        (a.name, a.subject): a
        for a in before.standing
        if (a.name, a.subject) not in found or a.name != AlarmName.OVERTAKEN
    }
    every = {**found, **kept}
    standing = tuple(alarm for alarm in every.values() if alarm.name in LOSSES)
    state = dataclasses.replace(
        _next_state(observation, before, standing), few_since_ms=few_since_ms
    )
    alarms = sorted(every.values(), key=lambda a: (a.name, a.subject))
    return WatchResult(
        alarms, state, verified_topics(observation, state), unverified_topics(observation, state)
    )


def retention_left_s(observation: MirrorObservation) -> dict[Partition, float]:
    """Return the time until retention at the edge may delete the first uncopied record.

    Args:
        observation: Current state of both clusters.

    Returns:
        The number of seconds for each edge topic-partition; negative if the retention time has
        already passed. Topic-partitions without a timestamp in `observation.uncopied_ms`, or with
        unlimited retention, are absent.
    """
    return {
        p: (written_ms + observation.retention_ms[p.topic] - observation.now_ms) / 1000
        for p, written_ms in observation.uncopied_ms.items()
        if observation.retention_ms.get(p.topic, -1) >= 0
    }


def verified_topics(
    observation: MirrorObservation, state: WatchState
) -> dict[str, TopicVerification]:
    """Return the topics whose copies have been verified by samples, with the progress of each.

    Args:
        observation: Current state of both clusters.
        state: Stored state, updated with the results of `observation`.

    Returns:
        Maps each verified edge topic to the progress of its verification. Other topics are absent.
    """
    results = _sampling_results(observation, state)
    return {
        topic: result for topic, result in results.items() if isinstance(result, TopicVerification)
    }


def unverified_topics(
    observation: MirrorObservation, state: WatchState
) -> dict[str, UnverifiedReason]:
    """Return the topics whose copies have not been verified by samples, with the reason for each.

    Args:
        observation: Current state of both clusters.
        state: Stored state, updated with the results of `observation`.

    Returns:
        Maps each unverified edge topic to the reason; empty if all topics are verified.
    """
    results = _sampling_results(observation, state)
    return {
        topic: result for topic, result in results.items() if isinstance(result, UnverifiedReason)
    }


def _sampling_results(
    observation: MirrorObservation, state: WatchState
) -> dict[str, TopicVerification | UnverifiedReason]:
    lost = {alarm.topic for alarm in state.standing}
    found: dict[str, TopicVerification | UnverifiedReason] = {}
    for name in sorted(observation.ids):
        if name in lost:
            found[name] = UnverifiedReason.LOSS
        elif name not in observation.remote_ids:
            found[name] = UnverifiedReason.NO_REMOTE
        else:
            parts = [
                (p, known)
                for p in observation.ends
                if p.topic == name and (known := state.partition_state(p)) is not None
            ]
            found[name] = _topic_result(observation, parts)
    return found


def _topic_result(
    observation: MirrorObservation, parts: list[tuple[Partition, PartitionState]]
) -> TopicVerification | UnverifiedReason:
    left = [known for p, known in parts if known.sampled < observation.ends[p]]
    if any(known.compared == 0 for known in left):
        return UnverifiedReason.NOT_COMPARED
    compared, passed = (
        sum(known.compared for _, known in parts),
        sum(known.passed for _, known in parts),
    )
    if compared == 0:
        return UnverifiedReason.NOTHING_NEW
    return TopicVerification(
        min([observation.now_ms, *(known.sampled_ms for known in left)]), compared, passed
    )


def unsampled_ranges(
    observation: MirrorObservation, before: WatchState
) -> dict[Partition, UnsampledRange]:
    """Return the offset range that was copied since the last sample, for each topic-partition.

    The next sample chooses its records from these ranges.

    Args:
        observation: Current state of both clusters.
        before: Stored state after the previous observation.

    Returns:
        Maps each topic-partition to a range of edge offsets. The range excludes offsets that the
        edge has deleted. Topic-partitions without stored state or newly copied records are absent.
    """
    found = {}
    for p, end in observation.ends.items():
        if (known := before.partition_state(p)) is not None and _same_topic(observation, before, p):
            copied = UnsampledRange(
                max(known.sampled, observation.starts[p]), min(observation.positions.get(p, 0), end)
            )
            if copied.first < copied.end:
                found[p] = copied
    return found


def partitions_trimmed_on_target(
    observation: MirrorObservation, before: WatchState
) -> list[Partition]:
    """Return the topic-partitions whose log start on the target has moved since the last check.

    A moved log start means that records were deleted on the target. The caller then checks whether
    they were deleted too early.

    Args:
        observation: Current state of both clusters.
        before: Stored state after the previous observation.

    Returns:
        Edge topic-partitions; empty if no log start moved.
    """

    def checked_start(p: Partition) -> int:
        return 0 if (known := before.partition_state(p)) is None else known.remote_start or 0

    return [p for p, start in observation.remote_starts.items() if start > checked_start(p)]


def stalled_partitions(observation: MirrorObservation, before: WatchState) -> list[Partition]:
    """Return the topic-partitions that are behind and have not advanced for 40 seconds.

    Args:
        observation: Current state of both clusters.
        before: Stored state after the previous observation.

    Returns:
        Stalled edge topic-partitions. Empty if the previous observation was 60 or more seconds ago,
        because the time without progress is then unknown.
    """
    if observation.now_ms - before.looked_ms >= BLIND_MS:
        return []
    return [
        p
        for p in (
            entry.partition
            for entry in partitions_behind(
                observation.ends, observation.starts, observation.positions
            )
        )
        if (known := before.partition_state(p)) is not None
        and known.position == observation.positions.get(p)
        and observation.now_ms - _correct_for_clock_change(observation, before, known.since_ms)
        >= STALL_MS
    ]


def _recreated(observation: MirrorObservation, before: WatchState) -> Iterator[Alarm]:
    for topic in recreated_topics(
        {name: known.topic_id for name, known in before.topics.items()}, observation.ids
    ):
        what = "deleted and recreated" if topic in observation.ids else "deleted"
        stood = {
            n: p.position
            for n, p in sorted(before.topics[topic].partitions.items())
            if p.position is not None
        }
        known = (
            ", ".join(f"{topic}-{n} up to {position}" for n, position in stood.items()) or "nothing"
        )
        seen_text = (
            f"topic {topic} was {what} at the edge; the mirror had copied: {known}; later records "
            "may be lost"
        )
        yield Alarm(AlarmName.TOPIC_RECREATED, topic, seen_text, topic)


def _passed_gap_alarms(observation: MirrorObservation, before: WatchState) -> list[Alarm]:
    # A gap is a range of offsets that retention deleted before they were copied. Each observation
    # finds a gap again until an operator accepts it, because the state keeps the offset before the gap.
    passed = {
        str(p)
        for p, start in observation.starts.items()
        if observation.positions.get(p, start) >= start
    }
    return [
        alarm
        for alarm in before.standing
        if alarm.name == AlarmName.OVERTAKEN and alarm.subject in passed
    ]


def _overtaken(observation: MirrorObservation, before: WatchState) -> Iterator[Alarm]:
    covered: dict[Partition, int] = dict(observation.positions)
    covered |= {
        p: known.covered
        for p in observation.starts
        if _same_topic(observation, before, p) and (known := before.partition_state(p)) is not None
    }
    for gap in find_gaps(
        covered, {p: start for p, start in observation.starts.items() if p in covered}
    ):
        yield Alarm(AlarmName.OVERTAKEN, str(gap.partition), str(gap), gap.partition.topic)


def _stale(observation: MirrorObservation) -> Iterator[Alarm]:
    for p in partitions_ahead(observation.ends, observation.positions):
        text = (
            f"{p}: the mirror's position {observation.positions[p]} is stale: it is past the edge's "
            f"log end {observation.ends[p]}, so nothing is copied"
        )
        yield Alarm(AlarmName.STALE_OFFSETS, str(p), text, p.topic)


def _truncated(observation: MirrorObservation, before: WatchState) -> Iterator[Alarm]:
    for topic, known in before.topics.items():
        if (
            known.remote_id is not None
            and observation.remote_ids.get(topic, known.remote_id) != known.remote_id
        ):
            text = (
                f"the remote topic of {topic} was deleted and recreated; the mirror does not copy its "
                "records again"
            )
            yield Alarm(AlarmName.TARGET_TRUNCATED, topic, text, topic)
    for p, end in observation.remote_ends.items():
        was = (
            part.remote_end
            if (part := before.partition_state(p)) is not None
            and _same_target(observation, before, p)
            else None
        )
        if was is not None and end < was:
            text = f"{p}: the target's end offset decreased from {was} to {end}: the records in between were removed"
            yield Alarm(AlarmName.TARGET_TRUNCATED, str(p), text, p.topic)
    for p, cut in observation.cut_off.items():
        text = (
            f"{p}: edge offset {cut.offset}, written {_at(cut.timestamp_ms)}, is not on the "
            "target, whose log begins at "
            f"{cut.target_start}; its retention cannot have deleted it yet"
        )
        yield Alarm(AlarmName.TARGET_TRUNCATED, str(p), text, p.topic)


def _different(observation: MirrorObservation) -> Iterator[Alarm]:
    for p, sample in observation.samples.items():
        if sample.differs is not None:
            text = (
                f"{p}: edge offset {sample.differs} is missing at its position on the target; "
                f"{sample.compared} records of offsets {sample.covered.first} to "
                f"{sample.covered.end - 1} were compared"
            )
            yield Alarm(AlarmName.CONTENTS_DIFFER, str(p), text, p.topic)


def _missing(observation: MirrorObservation) -> Iterator[Alarm]:
    for topic in sorted(observation.ids.keys() - observation.remote_ids.keys()):
        text = (
            f"topic {topic} has no remote topic on the central cluster: its records are not copied "
            "correctly"
        )
        yield Alarm(AlarmName.REMOTE_MISSING, topic, text, topic)


def _near(observation: MirrorObservation, limits: AlarmLimits) -> Iterator[Alarm]:
    for p, left_s in retention_left_s(observation).items():
        if left_s < min(limits.retention_hours * 3600, observation.retention_ms[p.topic] / 2000):
            text = (
                f"{p}: retention may delete the first uncopied record, offset "
                f"{_uncopied(observation, p)} of {_at(observation.uncopied_ms[p])}, in "
                f"{max(left_s, 0) / 3600:.1f} hours"
            )
            yield Alarm(AlarmName.RETENTION_NEAR, str(p), text, p.topic)


def _blocked(observation: MirrorObservation, still: list[Partition]) -> Iterator[Alarm]:
    for p, record in observation.blocking.items():
        if p in still:
            text = (
                f"{p}: copying has stopped at offset {_uncopied(observation, p)}; the record at "
                f"offset {record.offset} has {record.bytes} bytes, and the target accepts at most "
                f"{record.limit}"
            )
            yield Alarm(AlarmName.RECORD_BLOCKS, str(p), text, p.topic)


def _stopped(observation: MirrorObservation, still: list[Partition]) -> Iterator[Alarm]:
    for failure in observation.failures:
        yield Alarm(
            AlarmName.TASK_STOPPED, failure.name, f"{failure.name} does not run: {failure.cause}"
        )
    unexplained = [p for p in still if p not in observation.blocking]
    if unexplained and not observation.failures:
        first = unexplained[0]
        text = (
            f"{len(unexplained)} topic-partitions that are behind have not moved for "
            f"{STALL_MS // 1000} s, such as {first} at "
            f"{observation.positions.get(first, 'its beginning')} of {observation.ends[first]}"
        )
        yield Alarm(AlarmName.TASK_STOPPED, CONNECTOR, text)


def _workers_missing_since_ms(
    observation: MirrorObservation, before: WatchState, limits: AlarmLimits
) -> int | None:
    if observation.workers is None or observation.workers >= limits.workers:
        return None
    return (
        observation.now_ms
        if before.few_since_ms is None
        else _correct_for_clock_change(observation, before, before.few_since_ms)
    )


def _few(
    observation: MirrorObservation, since_ms: int | None, limits: AlarmLimits
) -> Iterator[Alarm]:
    if since_ms is not None and observation.now_ms - since_ms >= MISSING_WORKER_MS:
        text = (
            f"only {observation.workers} of {limits.workers} workers of this mirror have run since "
            f"{_at(since_ms)}"
        )
        yield Alarm(AlarmName.WORKER_MISSING, "mirror", text)


def _quiet(observation: MirrorObservation, limits: AlarmLimits) -> Iterator[Alarm]:
    for topic, expected_s in limits.expected_s.items():
        newest_ms = observation.newest_ms.get(topic)
        age_s = None if newest_ms is None else (observation.now_ms - newest_ms) / 1000
        if age_s is None or age_s > expected_s:
            newest = (
                "the topic has no records"
                if newest_ms is None
                else f"the newest record is of {_at(newest_ms)}, {age_s:.0f} s ago"
            )
            text = f"{topic}: {newest}; one record every {expected_s:g} s is expected"
            yield Alarm(AlarmName.NO_TRAFFIC, topic, text, topic)


def _next_state(
    observation: MirrorObservation, before: WatchState, standing: tuple[Alarm, ...]
) -> WatchState:
    overtaken = {a.subject for a in standing if a.name == AlarmName.OVERTAKEN}
    parts: dict[str, dict[int, PartitionState]] = {name: {} for name in observation.ids}
    for p in observation.ends:
        parts[p.topic][p.partition] = _next_partition_state(
            observation, before, p, keep_covered=str(p) in overtaken
        )
    remote_ids = {name: known.remote_id for name, known in before.topics.items()} | dict(
        observation.remote_ids
    )
    topics = {
        name: TopicState(observation.ids[name], remote_ids.get(name), parts[name])
        for name in observation.ids
    }
    return WatchState(looked_ms=observation.now_ms, topics=topics, standing=standing)


def _next_partition_state(
    observation: MirrorObservation, before: WatchState, p: Partition, *, keep_covered: bool
) -> PartitionState:
    known, position = (
        before.partition_state(p) if _same_topic(observation, before, p) else None,
        observation.positions.get(p),
    )
    new = (
        p.topic not in before.topics
    )  # what retention deleted before the first observation is not a loss
    first = observation.starts[p] if before.looked_ms == 0 or new else 0
    covered = first if position is None else min(position, observation.ends[p])
    if known is not None and keep_covered:
        covered = known.covered
    elif known is not None and position is None:
        covered = max(known.covered, observation.starts[p])  # past it only if that gap was accepted
    moved = (
        known is None
        or known.position != position
        or observation.now_ms - before.looked_ms >= BLIND_MS
    )
    caught_up = known is None or max(known.position or 0, observation.starts[p]) >= known.end
    copied = min(position or 0, observation.ends[p])
    sample = observation.samples.get(p)
    # A record timestamp may be in the future; do not report verification through a future time.
    through_ms = (
        0
        if known is None
        else known.sampled_ms
        if sample is None
        else min(observation.now_ms, sample.through_ms)
    )
    sampled, passed = (
        (known.sampled, known.passed)
        if known is not None
        else (max(copied, observation.starts[p]), 0)
    )
    return PartitionState(
        sampled=sampled if sample is None else sample.covered.end,
        sampled_ms=through_ms,
        passed=passed + (0 if sample is None else sample.covered.end - sample.covered.first),
        compared=(0 if known is None else known.compared)
        + (0 if sample is None else sample.compared),
        covered=covered,
        position=position,
        end=observation.ends[p],
        since_ms=observation.now_ms
        if known is None or moved or caught_up
        else _correct_for_clock_change(observation, before, known.since_ms),
        remote_start=observation.remote_starts.get(p)
        if p not in observation.unread
        else None
        if known is None
        else known.remote_start,
        remote_end=observation.remote_ends.get(p),
    )


def _correct_for_clock_change(
    observation: MirrorObservation, before: WatchState, since_ms: int
) -> int:
    # Subtracts as much as the clock was set back, so that a duration since the result does not shrink.
    return since_ms - max(0, before.looked_ms - observation.now_ms)


def _same_topic(observation: MirrorObservation, before: WatchState, p: Partition) -> bool:
    known = before.topics.get(p.topic)
    return known is not None and known.topic_id == observation.ids.get(p.topic)


def _same_target(observation: MirrorObservation, before: WatchState, p: Partition) -> bool:
    known = before.topics.get(p.topic)
    return known is not None and known.remote_id == observation.remote_ids.get(p.topic)


def _uncopied(observation: MirrorObservation, p: Partition) -> int:
    return max(observation.positions.get(p, 0), observation.starts[p])


def _at(time_ms: int) -> str:
    return dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
