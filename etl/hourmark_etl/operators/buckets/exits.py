"""Exit codes that state whether and how a bucket is closed. Pure.

`hourmark bucket why`, `show` and `wait` end with them, so that scripts can branch without parsing
output. The codes 1 and 2 mean what they mean for every command (`hourmark.errors`).
"""

from __future__ import annotations

import enum
from typing import Final

from hourmark.records.manifest import Grade
from hourmark_etl.buckets.reader import NotClosed
from hourmark_etl.model import HourState
from hourmark_etl.operators.explain import Explanation


class BucketExit(enum.IntEnum):
    """The state of a bucket as the exit code of a command.

    - `PROVED`, `TIMED_OUT`, `FORCED`: The bucket is closed with this grade.
    - `OPEN`: The bucket is not closed yet.
    - `NO_BUCKET`: The bucket will never exist, because the event type is unknown, its buckets begin
      later, or the hour had no events and was skipped.
    - `REMOVED`: The bucket was closed, and its events were later removed by retention.
    - `ERROR`: The state cannot be determined, or the bucket or the ledger (the ETL's state
      database) is damaged.
    """

    PROVED = 0
    ERROR = 1
    OPEN = 3  # 2 is wrong usage
    TIMED_OUT = 4
    FORCED = 5
    NO_BUCKET = 6
    REMOVED = 7


EXIT_CODES: Final = """\b
Exit codes:
  0  the bucket is closed as proved, or the hour was skipped and the bucket after it is proved
  1  the state cannot be determined, or the bucket or the ledger is damaged
  2  the arguments or the configuration are invalid
  3  the bucket is not closed yet
  4  the bucket is closed as timed_out
  5  the bucket is closed as forced
  6  the bucket will never exist: unknown type, hour before the first, or (show) a skipped hour
  7  the bucket was closed, and was later removed by retention
"""

_BY_GRADE: Final = {
    Grade.PROVED: BucketExit.PROVED,
    Grade.TIMED_OUT: BucketExit.TIMED_OUT,
    Grade.FORCED: BucketExit.FORCED,
}


class MissingMarker(NotClosed):
    """Raised by `hourmark bucket show` if the bucket has no `_SUCCESS` file.

    Attributes:
        exit_code: State of the bucket: `OPEN`, `NO_BUCKET`, or `ERROR` if the bucket is closed
            according to the ledger (the ETL's state database).
    """

    def __init__(self, message: str, exit_code: BucketExit) -> None:
        super().__init__(message, exit_code)
        self._message, self.exit_code = message, exit_code

    def __str__(self) -> str:
        return self._message


def exit_of_grade(grade: Grade) -> BucketExit:
    """Return the exit code of a closed bucket.

    Args:
        grade: Grade of the bucket: how complete it was known to be when it was closed.

    Returns:
        `PROVED` (0), `TIMED_OUT` (4) or `FORCED` (5).
    """
    return _BY_GRADE[grade]


def exit_of_explanation(explanation: Explanation) -> BucketExit:
    """Return the exit code for the state of a bucket that `hourmark bucket why` has explained.

    Args:
        explanation: Explanation from `explain_hour` or `explain_closed_hour`.

    Returns:
        The code. It is `ERROR` if the ledger (the ETL's state database) is damaged, or lacks the
        bucket of a closed hour.
    """
    if explanation.state == "removed":
        return BucketExit.REMOVED
    if explanation.grade is not None:
        return exit_of_grade(Grade(explanation.grade))
    if explanation.state in ("before-first", "unknown-type"):
        return BucketExit.NO_BUCKET
    if explanation.state in ("closed", HourState.DAMAGED.value):
        return BucketExit.ERROR
    return BucketExit.OPEN
