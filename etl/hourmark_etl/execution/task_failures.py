"""Errors of Spark tasks, returned to the driver as values instead of raised.

Spark converts an exception of a Python process to text, and the driver's reaction depends on the
exception's class and fields. A task therefore returns a `TaskFailure` as its result, which Spark
counts as success. The driver must pass all results of a job through `unpack_results` before it uses
any of them. Errors that a retry on another executor may avoid are raised until Spark's last attempt
(docs/internals/decisions/2026-11-28-task-failures-are-values.md).
"""

from __future__ import annotations

import errno
import pickle
import socket
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeVar

from pyspark import TaskContext

from hourmark.errors import HourmarkError, Unavailable
from hourmark_etl.errors import DataLoss, EtlStop

CAUSE_LINES_MAX: Final = 15  # of a traceback in a message
_NETWORK_ERRORS: Final = (ConnectionError, TimeoutError, socket.gaierror)
_NETWORK_CODES: Final = {
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.EHOSTDOWN,
    errno.ENETDOWN,
    errno.ETIMEDOUT,
}
_Result = TypeVar("_Result")


class TaskFailure(NamedTuple):
    """The final error of a Spark task, returned as a result instead of being raised.

    Attributes:
        error: The error with its class and fields. It can be pickled.
    """

    error: HourmarkError

    @classmethod
    def from_error(cls, error: Exception) -> TaskFailure:
        """Create a failure from any exception, converted by `to_hourmark_error`.

        Args:
            error: The exception that the task raised.

        Returns:
            A picklable failure. If the converted error cannot be pickled, an error of its nearest
            base class that can be pickled replaces it, with the same message.
        """
        return cls(_picklable(to_hourmark_error(error)))


def to_hourmark_error(error: BaseException) -> HourmarkError:
    """Convert any exception of a staging task to one of the project's own exceptions.

    The function searches the exception and the chain of its causes and contexts. A staging task
    copies Kafka records to files on storage.

    Args:
        error: The exception to convert.

    Returns:
        The first `HourmarkError` in the chain. If there is none, an `Unavailable` if the chain
        contains a network error, or else an `EtlStop` with the last lines of the traceback.
    """
    chain = [*_chain(error)]
    for one in chain:
        if isinstance(one, HourmarkError):
            return one
    for one in chain:
        if isinstance(one, _NETWORK_ERRORS) or getattr(one, "errno", None) in _NETWORK_CODES:
            return build_unreachable_error(f"{type(one).__name__}: {one}")
    return build_staging_error("".join(traceback.format_exception(error)))


def build_unreachable_error(reason: str) -> Unavailable:
    """Build the error to raise if staging cannot reach a server.

    Staging copies Kafka records to files on storage.

    Args:
        reason: Readable reason, which becomes part of the message.

    Returns:
        The error, which is not raised by this function.
    """
    return Unavailable(f"a server that staging needs could not be reached: {reason}")


def build_staging_error(cause: str) -> EtlStop:
    """Build the error that ends the driver process after a failure of staging.

    Staging copies Kafka records to files on storage.

    Args:
        cause: Text of the cause, such as a traceback. Its last lines become part of the message.

    Returns:
        The error, which is not raised by this function.
    """
    lines = "\n".join(cause.splitlines()[-CAUSE_LINES_MAX:])
    return EtlStop(
        "staging has stopped; start the driver again, it continues from the ledger. The "
        f"cause:\n{lines}"
    )


def catch_task_failure(
    results: Callable[[], Iterator[_Result]], attempts_max: int
) -> Iterator[_Result | TaskFailure]:
    """Run a Spark task and convert its final exception to a result.

    While Spark can still retry the task, exceptions are raised so that Spark does so.

    Args:
        results: Function that starts the task and returns an iterator over its results.
        attempts_max: Number of times that Spark runs a failing task; see
            `session.task_attempts_max`.

    Yields:
        The results of the task. If its last attempt fails, or the error is one that a retry cannot
        resolve, the last value is a `TaskFailure`.

    Raises:
        Exception: The task's own exception, if Spark will run the task again and this may succeed.
    """
    try:
        yield from results()
    except Exception as error:
        failure = TaskFailure.from_error(error)
        if is_worth_retrying(failure.error, error) and _attempt_number() + 1 < attempts_max:
            raise
        yield failure


def is_worth_retrying(typed: HourmarkError, raised: Exception) -> bool:
    """Return whether a failed task may succeed on another executor.

    Args:
        typed: The exception, converted by `to_hourmark_error`.
        raised: The exception as it was raised.

    Returns:
        True if a server could not be reached, or if the exception is not one of the project's own
        (for example, if a disk is full). False for the project's other exceptions, because they
        concern the data.
    """
    return isinstance(typed, Unavailable) or not any(
        isinstance(one, HourmarkError) for one in _chain(raised)
    )


def raise_failures(results: Iterable[_Result | TaskFailure]) -> list[_Result]:
    """Raise the most severe failure among the results of Spark tasks, if there is one.

    Args:
        results: Results of all tasks. A failed task has a `TaskFailure` as its last result.

    Returns:
        All results in their order, if no task failed.

    Raises:
        HourmarkError: The most severe failure. An error that stops the driver comes first, then a
            loss of data, then an unavailable server. Among equally severe failures, the first one
            is raised.
    """
    found = [*results]
    if failures := [one.error for one in found if isinstance(one, TaskFailure)]:
        raise min(failures, key=_severity)
    return [one for one in found if not isinstance(one, TaskFailure)]


def _severity(error: HourmarkError) -> int:
    return 2 if isinstance(error, Unavailable) else 1 if isinstance(error, DataLoss) else 0


def _attempt_number() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    now: BaseException | None = error
    while now is not None and id(now) not in seen:
        seen.add(id(now))
        yield now
        now = now.__cause__ or (None if now.__suppress_context__ else now.__context__)


def _picklable(error: HourmarkError) -> HourmarkError:
    try:
        again = pickle.loads(pickle.dumps(error))  # noqa: S301  # made in this process
        if type(again) is type(error) and str(again) == str(error):
            return error
    # whatever an exception's own methods raise
    except Exception:  # noqa: BLE001, S110
        pass
    plain = next(
        kind
        for kind in type(error).__mro__
        if issubclass(kind, HourmarkError)
        and kind.__init__ is HourmarkError.__init__
        and kind.__str__ is HourmarkError.__str__
    )
    return plain(str(error))
