"""What an acknowledgment of a range changes: counters, dead letters, the file and the spool.

An acknowledgment changes the file in memory at once. The range leaves the spool with the next change
of the checkpoint; if the tailer ends before, it is sent again.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Final

from hourmark.clock import Clock
from hourmark.records.dead_letters import DeadLetterReason
from hourmark.records.ranges import ByteRange
from hourmark.records.wire import RangeResponse
from hourmark_producer.checkpoint.database import Change, Checkpoint
from hourmark_producer.checkpoint.spooled_ranges import remove_from_spool
from hourmark_producer.counters import Counters
from hourmark_producer.files.tracked_file import SpooledRange, TrackedFile

_LOG = logging.getLogger(__name__)

_REASONS_MAX: Final = 100  # per source; services have far fewer


class DeadLetterCounts:
    """Counts dead letters by source and reason. Thread-safe.

    A dead letter is a line that a delivery service could not parse. A reason is logged when it
    first occurs for a source, and again when it occurs under a new revision of the parsing rules.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, Counter[str]] = {}
        self._logged_rules: dict[
            tuple[str, str], str
        ] = {}  # by source and reason: the rules revision when it was logged

    def record(self, byte_range: ByteRange, reasons: Mapping[str, int]) -> None:
        """Add the dead letters of one byte range to the counts, and log a warning for new reasons.

        Args:
            byte_range: The range that a service acknowledged.
            reasons: Number of unparsable lines by reason, from the service's response.
        """
        for reason, count in reasons.items():
            if self._is_new(byte_range, reason, count):
                _LOG.warning(
                    "source %s: lines become dead letters: %d %s between bytes %d and %d of %s, "
                    "with rules revision %s. %s",
                    byte_range.source,
                    count,
                    reason,
                    byte_range.start,
                    byte_range.end,
                    byte_range.path,
                    byte_range.rules,
                    _next_step(byte_range.source, reason),
                )

    def counts(self) -> dict[str, dict[str, int]]:
        """Return the number of dead letters since the process started, by source and reason.

        A dead letter is a line that a service could not parse. Sources without dead letters are
        omitted.
        """
        with self._lock:
            return {source: dict(counts) for source, counts in sorted(self._counts.items())}

    def _is_new(self, byte_range: ByteRange, reason: str, count: int) -> bool:
        with self._lock:
            counts = self._counts.setdefault(byte_range.source, Counter())
            if reason not in counts and len(counts) >= _REASONS_MAX:
                return False
            counts[reason] += count
            before = self._logged_rules.get((byte_range.source, reason))
            self._logged_rules[byte_range.source, reason] = byte_range.rules
            return before != byte_range.rules


def _next_step(source: str, reason: str) -> str:
    if reason == DeadLetterReason.UNKNOWN_SOURCE.value:
        return (
            f"The active rules do not declare a source {source}. Check its name in "
            "tailer.sources. If the name is correct, declare the source and run `hourmark types "
            "apply`; `hourmark types list` shows the declared sources"
        )
    return (
        f"`hourmark dead-letters show --source {source} --reason {reason}` shows them, on a "
        "host that can reach Kafka"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Acknowledgments:
    """Records the byte ranges that delivery services acknowledged, in memory and on disk.

    Call `record` for each response, and `commit` at the end of a file's step. Thread-safe if each
    file is used by one thread at a time.

    Attributes:
        checkpoint: Database that stores each range until a service acknowledges it.
        counters: Counters of this run.
        dead_letters: Counts of lines that services could not parse.
        clock: Clock of this host.
        window_max: Maximum number of ranges in flight per file.
    """

    checkpoint: Checkpoint
    counters: Counters
    dead_letters: DeadLetterCounts
    clock: Clock
    window_max: int

    def record(self, file: TrackedFile, outgoing: SpooledRange, answer: RangeResponse) -> None:
        """Record in memory that a service acknowledged a byte range.

        The limit of ranges in flight for this file increases by one, up to `window_max`. The range
        stays in the checkpoint until `commit` is called.

        Args:
            file: The file of the range.
            outgoing: The range, as it is in `file.progress.in_flight`.
            answer: Response of the service.
        """
        self.counters.count_acknowledged(outgoing.bytes, answer, self.clock.now_ms())
        self.dead_letters.record(outgoing.range, answer.dead_letter_reasons)
        sender = file.sender
        sender.failures, sender.window = 0, min(sender.window + 1, self.window_max)
        sent = tuple(
            one._replace(acknowledged=True) if one is outgoing else one
            for one in file.progress.in_flight
        )
        file.progress = dataclasses.replace(file.progress, in_flight=sent)

    def commit(self, file: TrackedFile) -> None:
        """Remove the acknowledged ranges of a file from the checkpoint and then from memory.

        Does nothing if there are none.

        Args:
            file: The file.

        Raises:
            CheckpointFailed: The ranges were not removed. They may be sent again, which does not
                create duplicates.
        """
        if acknowledged := removal_changes(file):
            self.checkpoint.commit(acknowledged)
            forget_acknowledged(file)


def removal_changes(file: TrackedFile) -> list[Change]:
    """Return the SQL statements that remove a file's acknowledged ranges from the checkpoint.

    Pass the statements to `Checkpoint.commit`, then call `forget_acknowledged`.

    Args:
        file: The file.

    Returns:
        One statement per acknowledged range; an empty list if there are none.
    """
    return [
        remove_from_spool(sent.sequence) for sent in file.progress.in_flight if sent.acknowledged
    ]


def forget_acknowledged(file: TrackedFile) -> None:
    """Remove a file's acknowledged ranges from memory.

    Call this function after you have committed the statements from `removal_changes`.

    Args:
        file: The file.
    """
    progress = file.progress
    file.progress = dataclasses.replace(progress, in_flight=progress.unacknowledged)
