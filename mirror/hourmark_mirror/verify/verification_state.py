"""What is remembered from one check to the next: topic ids, the mirror's positions, and alarms
(`work_dir/state/checks.json`).

Only with them can a gap be seen: retention that overtook the mirror, or a topic deleted and
recreated. An alarm stays until an operator accepts it: a topic with one keeps its old entry, and
what was found is told again, although retention may have deleted the evidence meanwhile. An edge
that was formatted anew has other topic ids: its topics were recreated.

Checks may run beside one another, and each for hours: what one writes goes beside what others have
written since it began.
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
    """Of one topic: its id, and the mirror's positions by partition."""

    topic_id: str
    positions: Mapping[int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class _Content:
    """Of the file. `accepted`: topics and partitions that only the target has, and may."""

    edge_cluster_id: str
    topics: dict[str, TopicCheckpoint]
    alarms: list[Alarm] = dataclasses.field(default_factory=list)
    accepted: list[str] = dataclasses.field(default_factory=list)
    format: Literal[1] = 1


_CONTENT: Final = TypeAdapter(_Content)


class VerificationState:
    """The remembered checks of a mirror.

    UsageError, naming the file, where it cannot be read or written.
    """

    def __init__(self, work_dir: Path, edge_cluster_id: str) -> None:
        self._path = work_dir / CHECKS_FILE
        self._cluster_id = edge_cluster_id
        self._take(self._read())

    def _take(self, content: _Content) -> None:
        self._known = content
        self.topics, self.alarms, self.accepted = (
            dict(content.topics),
            [*content.alarms],
            {*content.accepted},
        )

    def _read(self) -> _Content:
        try:
            return _CONTENT.validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return _Content(self._cluster_id, {})
        except OSError as error:
            raise UsageError(
                f"{self._path} cannot be read: {error.strerror}; ask as a user who may "
                "read and write it"
            ) from error
        except ValidationError as error:
            raise UsageError(
                f"{self._path} is damaged ({error}); what it remembered is lost: remove it, and "
                "the next check alarms "
                "for every topic whose beginning was deleted by retention"
            ) from error

    @property
    def ids(self) -> dict[str, str]:
        """Topic name → topic id at the previous check."""
        return {name: check.topic_id for name, check in self.topics.items()}

    @property
    def positions(self) -> dict[Partition, int]:
        """The mirror's positions at the previous check."""
        return {
            Partition(name, p): offset
            for name, check in self.topics.items()
            for p, offset in check.positions.items()
        }

    def lower_positions(self, ids: Mapping[str, str], starts: Mapping[Partition, int]) -> None:
        """Topics of these ids are copied again from these offsets on; below them, all was copied as
        far as it was before.

        A topic of another id keeps its entry: it says up to where the old one was copied.
        """
        for name, check in self.topics.items():
            if ids.get(name) == check.topic_id:
                stands = {
                    p: min(offset, starts.get(Partition(name, p), offset))
                    for p, offset in check.positions.items()
                }
                self.topics[name] = TopicCheckpoint(check.topic_id, stands)

    def raise_alarms(self, found: Sequence[Alarm]) -> list[Alarm]:
        """Remember these; all that stand: what was found as it is now, what is no longer seen as it
        was.
        """
        now, before = ({(a.name, a.subject): a for a in alarms} for alarms in (found, self.alarms))
        self.alarms = [
            *{**now, **before}.values()
        ]  # the first text: it tells of evidence that goes
        return [*{**before, **now}.values()]

    def save(self) -> None:
        """Write durably, beside what others have written since this was read."""
        mine = _Content(self._cluster_id, self.topics, self.alarms, [*self.accepted])
        with exclusive_lock(self._path):
            every = _merged(self._known, mine, self._read())
            try:
                write_durably(self._path, _CONTENT.dump_json(every, indent=1))
            except OSError as error:
                raise UsageError(
                    f"{self._path} cannot be written: {error.strerror}; the next check will not "
                    "know what this one found: make "
                    "it writable, or room, and ask again"
                ) from error
        self._take(every)


def _merged(known: _Content, mine: _Content, theirs: _Content) -> _Content:
    """`known`: what `mine` and `theirs` both came from. An alarm is taken away only by who
    knew it.
    """
    names = sorted(known.topics.keys() | mine.topics.keys() | theirs.topics.keys())
    checks = {
        n: _check(known.topics.get(n), mine.topics.get(n), theirs.topics.get(n)) for n in names
    }
    before, now, others = (
        {(a.name, a.subject): a for a in content.alarms} for content in (known, mine, theirs)
    )
    gone = before.keys() - now.keys()
    alarms = {**{what: now[what] for what in now if what not in before}, **others}
    return _Content(
        mine.edge_cluster_id,
        {name: check for name, check in checks.items() if check is not None},
        [alarm for what, alarm in alarms.items() if what not in gone],
        sorted({*mine.accepted, *theirs.accepted}),
    )


def _check(
    known: TopicCheckpoint | None, mine: TopicCheckpoint | None, theirs: TopicCheckpoint | None
) -> TopicCheckpoint | None:
    """Where both wrote of one topic, the lower positions: below those all was copied, whichever of
    them is right.
    """
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
