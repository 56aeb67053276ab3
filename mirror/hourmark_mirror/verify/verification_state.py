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
    """Topic id and mirror positions of one edge topic at a verification.

    Attributes:
        topic_id: Kafka's id of the topic.
        positions: Next offset that the mirror copies, by partition number.
    """

    topic_id: str
    positions: Mapping[int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class _StoredChecks:
    """Content of the file that stores the state of verifications.

    Attributes:
        edge_cluster_id: Kafka cluster id of the edge.
        topics: Checkpoint of each edge topic, by name.
        alarms: Alarms that are not accepted.
        accepted: Topics and partitions accepted to exist only on the central cluster.
        format: Version of the file format.
    """

    edge_cluster_id: str
    topics: dict[str, TopicCheckpoint]
    alarms: list[Alarm] = dataclasses.field(default_factory=list)
    accepted: list[str] = dataclasses.field(default_factory=list)
    format: Literal[1] = 1


_CONTENT: Final = TypeAdapter(_StoredChecks)


class VerificationState:
    """Persistent state of the verifications of one mirror.

    Attributes:
        topics: Checkpoint of each edge topic, by name.
        alarms: Alarms that are not accepted.
        accepted: Topics and partitions accepted to exist only on the central cluster.
    """

    def __init__(self, work_dir: Path, edge_cluster_id: str) -> None:
        """Read the state file; start empty if it does not exist.

        Args:
            work_dir: `mirror.work_dir`; the file is `state/checks.json` in it.
            edge_cluster_id: Kafka cluster id of the edge, which a new file records.

        Raises:
            UsageError: The file cannot be read or is damaged.
        """
        self._path = work_dir / CHECKS_FILE
        self._cluster_id = edge_cluster_id
        self._take(self._read())

    def _take(self, content: _StoredChecks) -> None:
        self._known = content
        self.topics, self.alarms, self.accepted = (
            dict(content.topics),
            [*content.alarms],
            {*content.accepted},
        )

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
        """Return the topic id of each topic at the previous verification, by topic name."""
        return {name: check.topic_id for name, check in self.topics.items()}

    @property
    def positions(self) -> dict[Partition, int]:
        """Return the mirror's positions at the previous verification, by edge topic-partition."""
        return {
            Partition(name, p): offset
            for name, check in self.topics.items()
            for p, offset in check.positions.items()
        }

    def lower_positions(self, ids: Mapping[str, str], starts: Mapping[Partition, int]) -> None:
        """Lower the stored positions of topics that the mirror copies again from an earlier offset.

        Args:
            ids: Current topic ids by topic name. The positions of a topic that is stored with
                another id are kept, because they record how far the old topic was copied.
            starts: For each topic-partition, the first offset that is copied again.
        """
        for name, check in self.topics.items():
            if ids.get(name) == check.topic_id:
                positions = {
                    p: min(offset, starts.get(Partition(name, p), offset))
                    for p, offset in check.positions.items()
                }
                self.topics[name] = TopicCheckpoint(check.topic_id, positions)

    def raise_alarms(self, alarms: Sequence[Alarm]) -> list[Alarm]:
        """Add alarms to the state and return all alarms that are not accepted.

        An alarm is identified by name and subject. If it is already known, the state keeps the
        earlier text, because its evidence may be deleted, and the returned list has the new text.

        Args:
            alarms: Alarms of the current verification.

        Returns:
            Earlier and new alarms; empty if there are none.
        """
        now, before = ({(a.name, a.subject): a for a in group} for group in (alarms, self.alarms))
        self.alarms = [
            *{**now, **before}.values()
        ]  # keep the first text: its evidence may be deleted
        return [*{**before, **now}.values()]

    def save(self) -> None:
        """Merge with changes by other processes and write the file durably.

        Raises:
            UsageError: The file cannot be read or written.
            Unavailable: Another process holds the lock too long.
        """
        mine = _StoredChecks(self._cluster_id, self.topics, self.alarms, [*self.accepted])
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
