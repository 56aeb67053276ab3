"""Alarms: conditions that an operator must know about, because events may be or were lost.

Each alarm has a stable name, a page of that name in `docs/runbooks`, and one sentence on what to
do. `seen` is the observation, with topic, partition and offsets. Pure functions derive alarms from
observations; commands and watchers only report them. `AlarmLog` logs each alarm once when it is
raised and once when it is resolved.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

RUNBOOKS: Final = "docs/runbooks"


class AlarmName(StrEnum):
    """The kinds of alarms. An alarm is a condition that requires action by an operator.

    Each value is the name of the alarm, such as `no-traffic`. Its runbook in `docs/runbooks` has
    the same name. Names that begin with `mirror-` concern MirrorMaker 2, which copies topics from
    the edge cluster to the central cluster.
    """

    RETENTION_NEAR = "mirror-retention-near"
    OVERTAKEN = "mirror-overtaken"
    TOPIC_RECREATED = "mirror-topic-recreated"
    STALE_OFFSETS = "mirror-stale-offsets"
    TARGET_TRUNCATED = "mirror-target-truncated"
    REMOTE_MISSING = "mirror-remote-topic-missing"
    TASK_STOPPED = "mirror-task-stopped"
    WORKER_MISSING = "mirror-worker-missing"
    RECORD_BLOCKS = "mirror-record-blocks"
    CONTENTS_DIFFER = "mirror-contents-differ"
    ONLY_CENTRAL = "mirror-only-central"
    NOT_COMPARED = "mirror-not-compared"
    UNWATCHED = "mirror-unwatched"
    NO_TRAFFIC = "no-traffic"
    CANARY_LATE = "canary-late"


_TO_DO: Final = {
    AlarmName.RETENTION_NEAR: "speed up the mirror, or raise retention.ms of the edge's topic, before that time",
    AlarmName.OVERTAKEN: (
        "list the missing records with `hourmark mirror verify`; if they are permanently lost, "
        "close the bucket without them: `hourmark bucket force`"
    ),
    AlarmName.TOPIC_RECREATED: (
        "find out who deleted it; `hourmark mirror reset-offsets` resets stale positions, or "
        "shows the next step if there are none"
    ),
    AlarmName.STALE_OFFSETS: (
        "run `hourmark mirror reset-offsets`: until then, no record of the partition is copied "
        "until its end offset exceeds the position"
    ),
    AlarmName.TARGET_TRUNCATED: "list the missing records with `hourmark mirror verify` while the edge still has them",
    AlarmName.REMOTE_MISSING: "start `hourmark mirror run` again: it creates the missing topics",
    AlarmName.TASK_STOPPED: "check that `hourmark mirror run` runs, and its log for messages about this task",
    AlarmName.WORKER_MISSING: (
        "start `hourmark mirror run` on the host that is missing: copying continues with fewer "
        "workers"
    ),
    AlarmName.RECORD_BLOCKS: "raise max.message.bytes of the topic on the central cluster above the record's size",
    AlarmName.CONTENTS_DIFFER: "examine the records that `hourmark mirror verify` lists, and find out which other "
    "program writes to the topic",
    AlarmName.ONLY_CENTRAL: "find out who created it; if it is legitimate: `hourmark mirror verify --accept`",
    AlarmName.NOT_COMPARED: "raise retention.ms and run it again: records deleted in the meantime cannot be compared",
    AlarmName.UNWATCHED: "restore the clusters: until then it is unknown whether records are lost",
    AlarmName.NO_TRAFFIC: (
        "check the sources of this type; if the canary is silent too, check the delivery "
        "service first"
    ),
    AlarmName.CANARY_LATE: "check the step named in the alarm; all steps before it work",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Alarm:
    """A condition that requires action by an operator.

    Attributes:
        name: The kind of alarm.
        subject: The affected object, such as a topic or a partition. There is at most one alarm for
            each combination of name and subject.
        seen: Description of what was observed.
        topic: Name of the affected topic on the edge cluster; empty if no topic is affected.
    """

    name: AlarmName
    subject: str
    seen: str
    topic: str = ""

    @property
    def to_do(self) -> str:
        """Return a description of what the operator must do to resolve the alarm."""
        return _TO_DO[self.name]

    @property
    def runbook(self) -> str:
        """Return the path of the alarm's runbook page in the repository.

        Returns:
            A path such as `docs/runbooks/no-traffic.md`.
        """
        return f"{RUNBOOKS}/{self.name}.md"

    def as_object(self) -> dict[str, str]:
        """Return the alarm as a JSON-serializable dict.

        Returns:
            A dict with the keys `name`, `subject`, `seen`, `to_do` and `runbook`. All values are
            strings.
        """
        return {
            "name": self.name,
            "subject": self.subject,
            "seen": self.seen,
            "to_do": self.to_do,
            "runbook": self.runbook,
        }

    def __str__(self) -> str:
        return f"{self.name}: {self.seen}; {self.to_do} ({self.runbook})"


_LOG = logging.getLogger(__name__)


class AlarmLog:
    """The set of active alarms, which logs each alarm when it is raised and when it is resolved.

    Attributes:
        alarms: The alarms that are currently active.
    """

    def __init__(self) -> None:
        self.alarms: list[Alarm] = []

    def update(self, alarms: Sequence[Alarm]) -> None:
        """Replace the set of active alarms, and log the difference.

        A new alarm is logged as an error, and a resolved alarm as a warning. An alarm that was
        active before, with the same name and subject, is not logged again.

        Args:
            alarms: All alarms that are currently active; may be empty.
        """
        now, before = ({(a.name, a.subject): a for a in some} for some in (alarms, self.alarms))
        for key, alarm in now.items():
            if key not in before:
                _LOG.error("ALARM %s", alarm)
        for key in before:
            if key not in now:
                _LOG.warning("resolved: %s of %s", *key)
        self.alarms = list(alarms)
