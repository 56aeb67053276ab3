"""Errors that only Spark's text describes: which restart the staging query, and which stop it."""

from __future__ import annotations

import pytest

from hourmark.errors import Unavailable
from hourmark_etl.errors import EtlStop
from hourmark_etl.staging.spark_errors import classify_spark_error, format_query_error

# As Spark 4.1.1 words the end of a batch whose worker was killed, with most of the stack left out.
WORKER_KILLED = """\
An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "pyspark/errors/exceptions/captured.py", line 263, in deco
    return f(*a, **kw)
py4j.protocol.Py4JJavaError: An error occurred while calling o60.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 2 \
times, most recent failure: Lost task 0.1 in stage 0.0 (TID 1) (vm executor driver): \
org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider setting \
'spark.sql.execution.pyspark.udf.faulthandler.enabled' or\
'spark.python.worker.faulthandler.enabled' configuration to 'true' for the better Python traceback.
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator$$anonfun$1.applyOrElse(\
PythonRunner.scala:742)
Caused by: java.io.EOFException
\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:386)
"""


@pytest.mark.parametrize(
    "text",
    [
        "java.net.ConnectException: Call From a to b:8020 failed on connection exception",
        "java.net.SocketTimeoutException: 60000 millis timeout",
        "java.net.UnknownHostException: namenode",
        "java.io.IOException: Connection reset by peer",
        "java.io.IOException: Broken pipe",
        "An error occurred while calling o241.load.\n: java.io.IOException: Stream closed",
        "Stream closed\n=== Streaming Query ===\nCurrent State: ACTIVE",
        "Python worker failed to connect back.\n=== Streaming Query ===",
        "ExecutorLostFailure (executor 1 exited caused by one of the running tasks)",
        "Aborting TaskSet 0.0 because task 1 (partition 1)\ncannot run anywhere due to node and "
        "executor excludeOnFailure.",
        WORKER_KILLED,
    ],
)
def test_a_lost_process_and_a_network_error_restart_the_query(text: str) -> None:
    assert type(classify_spark_error(f"{text}\n\tat org.apache.spark.Task.run")) is Unavailable


def test_a_killed_worker_is_named_although_the_connection_to_it_ended_too() -> None:
    assert "a Python worker" in str(classify_spark_error(WORKER_KILLED))


class QueryError(Exception):
    """The error of a query as PySpark has it: the Java message, and the Java stack in its cause."""

    def __init__(self, message: str, kind: str, method: str = "partitions") -> None:
        super().__init__(f"{message}\n=== Streaming Query ===\nCurrent State: ACTIVE")
        self._cause = Exception(message)
        self._cause._stackTrace = (  # type: ignore[attr-defined]
            f"{kind}\n\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:386)\n"
            "\tat org.apache.spark.sql.execution.python.streaming.PythonStreamingSourceRunner."
            f"{method}(PythonStreamingSourceRunner.scala:173)"
        )


@pytest.mark.parametrize("method", ["latestOffset", "partitions"])
def test_a_killed_planner_is_recognized_by_the_java_stack_as_java_has_no_message(
    method: str,
) -> None:
    error = classify_spark_error(
        format_query_error(QueryError("null", "java.io.EOFException", method))
    )
    assert type(error) is Unavailable
    assert "the Python process that plans" in str(error)


@pytest.mark.parametrize(
    "error",
    [
        QueryError("a defect", "java.io.EOFException"),  # the stack counts only without a message
        QueryError("null", "java.lang.NullPointerException"),
        None,
    ],
)
def test_any_other_end_of_a_query_stops_the_driver(error: Exception | None) -> None:
    assert type(classify_spark_error(format_query_error(error))) is EtlStop


def test_the_message_of_any_other_text_has_its_last_lines() -> None:
    text = "\n".join(f"line {n}" for n in range(30))
    error = classify_spark_error(text)
    assert type(error) is EtlStop
    assert "line 29" in str(error) and "line 15" in str(error) and "line 14" not in str(error)
