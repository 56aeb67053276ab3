"""Classifies errors that Spark and the JVM raise, which are available only as text.

Errors of Python code are not handled here: tasks and the planning of batches return them as values
(`hourmark_etl.execution.task_failures`), and the driver's own errors are exceptions. Text remains
for

- a Python process that was lost, and with it anything it could have returned;
- an executor that was lost, or the exclusion of all executors;
- network errors of the JVM itself, for example between driver and executors.

All of these are temporary, so the staging query is restarted. Any other text stops the driver.
"""

from __future__ import annotations

import re
from typing import Final

from hourmark.errors import HourmarkError, Unavailable
from hourmark_etl.execution.task_failures import build_staging_error, build_unreachable_error

_LOST_WORKER: Final = (
    "Python worker exited unexpectedly",
    "Python worker failed to connect back",
    "ExecutorLostFailure",
    "cannot run anywhere due to node and executor excludeOnFailure",
    "Stream closed",
)
# The planning process is connected to the JVM by a socket, which closes when the process dies. The
# EOFException that follows has no message, so only its stack tells where it comes from.
_LOST_PLANNER: Final = re.compile(
    r"EOFException$(?:\n\s+at .*)*PythonStreamingSourceRunner", re.MULTILINE
)
_NETWORK: Final = re.compile(
    r"^.*(?:Connection (?:refused|reset|timed out)|timed out|Broken pipe|No route to "
    r"host|Network is unreachable"
    r"|(?:Connect|SocketTimeout|UnknownHost|NoRouteToHost|EOF)Exception).*$",
    re.MULTILINE,
)


def format_query_error(error: BaseException | None) -> str:
    """Return the text of the error that ended a Spark query.

    A Java stack trace is appended only if the Java exception has no message of its own.

    Args:
        error: The error; None if Spark reports no error.

    Returns:
        The text; a fixed text if `error` is None.
    """
    text = str(error or "it ended without an error")
    # PySpark's own text of a cause leaves out the stack.
    trace = getattr(getattr(error, "_cause", None), "_stackTrace", "")
    return f"{text}\n{trace}" if text.startswith("null\n") else text


def classify_spark_error(text: str) -> HourmarkError:
    """Convert the text of an error from Spark or the JVM to an exception.

    Args:
        text: Text of the error, as `format_query_error` returns it.

    Returns:
        `Unavailable` if a process was lost or a server cannot be reached, so that a restart may
        help; otherwise `EtlStop` with the last lines of the text.
    """
    if any(lost in text for lost in _LOST_WORKER):
        return Unavailable(
            "a Python worker of the staging query was lost; check whether it ran out of memory "
            "or was killed, or the machine was overloaded"
        )
    if _LOST_PLANNER.search(text):
        return Unavailable(
            "the Python process that plans the staging query was lost; check whether it ran out "
            "of memory or was killed"
        )
    if found := _NETWORK.search(text):
        return build_unreachable_error(found[0].strip())
    return build_staging_error(text)
