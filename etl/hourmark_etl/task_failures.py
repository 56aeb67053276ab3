"""Errors of Spark tasks, returned to the driver as values instead of raised.

Spark converts an exception of a Python process to text, and the driver's reaction depends on the
exception's class and fields. A task therefore returns a `TaskFailure` as its result, which Spark
counts as success: whoever collects results must pass them through `raise_failures` before it uses
any of them. Errors that a retry on another executor may avoid are raised until Spark's last attempt
(docs/decisions/2026-11-28-task-failures-are-values.md).
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
    """An error that ended a task or its planning, returned as a result.

    Attributes:
        error: The error with its class and fields. It can be pickled.
    """

    error: HourmarkError

    @classmethod
    def from_error(cls, error: Exception) -> TaskFailure:
        """Return the failure for any exception; see `typed_error`.

        An error that does not survive pickling is replaced by one of its nearest base class that
        does, with the same message.
        """
        return cls(_picklable(typed_error(error)))


def typed_error(error: BaseException) -> HourmarkError:
    """Return the project's own exception for any exception that staging raised.

    The exception and those it was raised from are searched, as a traceback prints them.

    Returns:
        The first of the project's own exceptions; otherwise `Unavailable` if the network failed;
        otherwise `EtlStop` with the last lines of the traceback.
    """
    chain = [*_chain(error)]
    for one in chain:
        if isinstance(one, HourmarkError):
            return one
    for one in chain:
        if isinstance(one, _NETWORK_ERRORS) or getattr(one, "errno", None) in _NETWORK_CODES:
            return unreachable_server(f"{type(one).__name__}: {one}")
    return stopped_staging("".join(traceback.format_exception(error)))


def unreachable_server(reason: str) -> Unavailable:
    """Return the error for a server that staging needs and cannot reach."""
    return Unavailable(f"a server that staging needs could not be reached: {reason}")


def stopped_staging(cause: str) -> EtlStop:
    """Return the error that stops the driver, with the last lines of the cause's text."""
    lines = "\n".join(cause.splitlines()[-CAUSE_LINES_MAX:])
    return EtlStop(
        "staging has stopped; start the driver again, it continues from the ledger. The "
        f"cause:\n{lines}"
    )


def guard_task(
    results: Callable[[], Iterator[_Result]], attempts_max: int
) -> Iterator[_Result | TaskFailure]:
    """Yield a task's results, and a `TaskFailure` in place of an exception that ends it.

    Args:
        results: Starts the task and returns an iterator of its results.
        attempts_max: How often Spark attempts a task; see `spark.task_attempts_max`.

    Raises:
        Exception: The task's own exception, if Spark attempts the task again and that may help.
    """
    try:
        yield from results()
    except Exception as error:
        failure = TaskFailure.from_error(error)
        if is_worth_retrying(failure.error, error) and _attempt_number() + 1 < attempts_max:
            raise
        yield failure


def is_worth_retrying(typed: HourmarkError, raised: Exception) -> bool:
    """Return whether the same task may succeed on another executor.

    That holds for servers that cannot be reached and for exceptions that are not the project's own,
    such as a full disk or exhausted memory. The project's other errors concern the data.
    """
    return isinstance(typed, Unavailable) or not any(
        isinstance(one, HourmarkError) for one in _chain(raised)
    )


def raise_failures(results: Iterable[_Result | TaskFailure]) -> list[_Result]:
    """Return the results if no task failed.

    Raises:
        HourmarkError: The most severe failure: one that stops the driver, else a loss of data, else
            an unavailable server. Of equal ones the first.
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
