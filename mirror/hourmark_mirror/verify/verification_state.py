"""State kept between two verifications: topic ids, positions and alarms (`state/checks.json`).

Without it, gaps between two verifications would go unnoticed: retention that passed the mirror, or
a topic that was deleted and recreated. An alarm persists until an operator accepts it. A topic with
an alarm keeps its old entry, so each verification reports the finding again although retention may
have deleted the evidence. An edge cluster that was reformatted has new topic ids, so its topics
count as recreated.

Verifications may run concurrently for hours. `save` merges with what others have written since the
state was read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from pydantic import TypeAdapter, ValidationError

from hourmark.errors import UsageError
from hourmark.kafka.clients import Partition
from hourmark.process.alarms import Alarm
from hourmark.process.durable import write_durably
from hourmark_mirror.state_lock import exclusive_lock

CHECKS_FILE: Final = "state/checks.json"  # below the work folder


@dataclasses.dataclass(frozen=True, slots=True)
class TopicCheckpoint:
    """Topic id and mirror positions of one edge topic, as recorded by a verification.

    Attributes:
        topic_id: Unique topic id assigned by Kafka. It changes if the topic is recreated.
        positions: Maps each partition number to the offset of the next record to copy.
    """

    topic_id: str
    positions: Mapping[int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class _StoredChecks:
    edge_cluster_id: str
    topics: dict[str, TopicCheckpoint]
    alarms: list[Alarm] = dataclasses.field(default_factory=list)
    accepted: list[str] = dataclasses.field(default_factory=list)
    recreated: dict[str, str] = dataclasses.field(default_factory=dict)
    format: Literal[1] = 1


_CONTENT: Final = TypeAdapter(_StoredChecks)


class VerificationState:
    """Persistent state of the verifications of one mirror, stored in a JSON file.

    Attributes:
        topics: Maps each edge topic name to the topic id and mirror positions at its last
            verification.
        alarms: Alarms that no operator has accepted.
        accepted: Topics and partitions that exist only on the central cluster, as accepted by an
            operator.
        recreated: Maps the names of edge topics that were deleted and recreated, as accepted by an
            operator, to their new topic ids. The central cluster may still have records of the
            deleted topics.
    """

    def __init__(self, work_dir: Path, edge_cluster_id: str) -> None:
        """Load the state from its file; the state is empty if the file does not exist.

        Args:
            work_dir: `mirror.work_dir`, which contains the file `state/checks.json`.
            edge_cluster_id: Kafka cluster id of the edge, stored in a new file.

        Raises:
            UsageError: The file cannot be read or is damaged.
        """
        self._path = work_dir / CHECKS_FILE
        self._cluster_id = edge_cluster_id
        self._take(self._read())

    def _take(self, content: _StoredChecks) -> None:
        self._known = content
        self.topics, self.alarms = dict(content.topics), [*content.alarms]
        self.accepted, self.recreated = {*content.accepted}, dict(content.recreated)

    def _read(self) -> _StoredChecks:
        try:
            return _CONTENT.validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return _StoredChecks(self._cluster_id, {})
        except OSError as error:
            raise UsageError(
                f"{self._path} cannot be read: {error.strerror}; run the command as a user who can "
                "read and write it"
            ) from error
        except ValidationError as error:
            raise UsageError(
                f"{self._path} is damaged ({error}), and its state is lost: remove it; the next "
                "check then raises alarms for every topic whose oldest records were deleted by "
                "retention"
            ) from error

    @property
    def ids(self) -> dict[str, str]:
        """Return the Kafka topic ids that the previous verification recorded.

        Returns:
            Maps each edge topic name to its topic id; empty before the first verification.
        """
        return {name: check.topic_id for name, check in self.topics.items()}

    @property
    def positions(self) -> dict[Partition, int]:
        """Return the mirror's positions that the previous verification recorded.

        Returns:
            Maps each edge topic-partition to the offset of the next record that the mirror had to
            copy; empty before the first verification.
        """
        return {
            Partition(name, p): offset
            for name, check in self.topics.items()
            for p, offset in check.positions.items()
        }

    def lower_positions(self, ids: Mapping[str, str], starts: Mapping[Partition, int]) -> None:
        """Lower the recorded mirror positions before the mirror copies some offsets again.

        Call this method when mirror positions are reset. With the lower positions, the next
        verification still detects records that are lost after the reset. The change is in memory
        until `save` is called.

        Args:
            ids: Maps each edge topic name to its current topic id. If a topic was recreated and has
                a new id, its recorded positions are kept, because they belong to the old topic.
            starts: Maps each edge topic-partition to the first offset that is copied again. A
                position that is already lower is kept.
        """
        for name, check in self.topics.items():
            if ids.get(name) == check.topic_id:
                positions = {
                    p: min(offset, starts.get(Partition(name, p), offset))
                    for p, offset in check.positions.items()
                }
                self.topics[name] = TopicCheckpoint(check.topic_id, positions)

    def raise_alarms(self, alarms: Sequence[Alarm]) -> list[Alarm]:
        """Add alarms to the state, and return all alarms that no operator has accepted.

        Alarms with the same name and subject are considered equal. The state keeps the text of the
        first occurrence, because the evidence may be deleted later. The returned list contains the
        current text.

        Args:
            alarms: Alarms of the current verification.

        Returns:
            Earlier and current alarms, one for each name and subject; empty if there are none.
        """
        now, before = ({(a.name, a.subject): a for a in group} for group in (alarms, self.alarms))
        self.alarms = [
            *{**now, **before}.values()
        ]  # keep the first text: its evidence may be deleted
        return [*{**before, **now}.values()]

    def save(self) -> None:
        """Write the state to its file and flush it to disk.

        Changes that another process has written to the file in the meantime are merged.

        Raises:
            UsageError: The file cannot be read or written. Make it writable or free disk space,
                then verify again.
            Unavailable: Another process holds the lock of the file longer than the timeout.
        """
        mine = _StoredChecks(
            self._cluster_id, self.topics, self.alarms, [*self.accepted], self.recreated
        )
        with exclusive_lock(self._path):
            merged = _merged(self._known, mine, self._read())
            try:
                write_durably(self._path, _CONTENT.dump_json(merged, indent=1))
            except OSError as error:
                raise UsageError(
                    f"{self._path} cannot be written: {error.strerror}; the next verification will not "
                    "know these findings: make the file "
                    "writable or free disk space, then verify again"
                ) from error
        self._take(merged)


def _merged(known: _StoredChecks, mine: _StoredChecks, theirs: _StoredChecks) -> _StoredChecks:
    names = sorted(known.topics.keys() | mine.topics.keys() | theirs.topics.keys())
    checks = {
        n: _check(known.topics.get(n), mine.topics.get(n), theirs.topics.get(n)) for n in names
    }
    before, now, others = (
        {(a.name, a.subject): a for a in content.alarms} for content in (known, mine, theirs)
    )
    gone = before.keys() - now.keys()
    alarms = {**{what: now[what] for what in now if what not in before}, **others}
    return _StoredChecks(
        mine.edge_cluster_id,
        {name: check for name, check in checks.items() if check is not None},
        [alarm for what, alarm in alarms.items() if what not in gone],
        sorted({*mine.accepted, *theirs.accepted}),
        {**theirs.recreated, **mine.recreated},
    )


def _check(
    known: TopicCheckpoint | None, mine: TopicCheckpoint | None, theirs: TopicCheckpoint | None
) -> TopicCheckpoint | None:
    if theirs == known:
        return mine
    if mine == known or mine is None or theirs is None or mine.topic_id != theirs.topic_id:
        return theirs
    lower = {
        p: min(offset, theirs.positions[p])
        for p, offset in mine.positions.items()
        if p in theirs.positions
    }
    return TopicCheckpoint(theirs.topic_id, lower)
