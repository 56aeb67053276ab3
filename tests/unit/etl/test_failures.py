"""Why a staging query ended, from Spark's text: what is begun again, and what stops the driver."""

from __future__ import annotations

import pytest

from hourmark.errors import Unavailable
from hourmark_etl.errors import EtlStop
from hourmark_etl.staging.consumer import parse_cause, query_error_text

PYTHON = (
    "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n  File x\n"
)


@pytest.mark.parametrize(
    "line",
    [
        "hourmark_etl.storage.webhdfs_http.OutcomeUnknown: a/b (hdfs://n/a/b): no answer from "
        "http://d:9864 (ConnectionRefusedError)",
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "BrokenPipeError: [Errno 32] Broken pipe",
        "TimeoutError: timed out",
        "socket.gaierror: [Errno -2] Name or service not known",
        "OSError: [Errno 113] No route to host",
        "java.net.ConnectException: Call From a to b:8020 failed on connection exception",
        "java.net.SocketTimeoutException: 60000 millis timeout",
        "java.net.UnknownHostException: namenode",
        "An error occurred while calling o241.load.\n: java.io.IOException: Stream closed",
        "Stream closed\n=== Streaming Query ===\nCurrent State: ACTIVE",
        "Job aborted: Python worker exited unexpectedly (crashed)",
        "ExecutorLostFailure (executor 1 exited caused by one of the running tasks)",
    ],
)
def test_a_server_or_worker_that_is_away_is_begun_again(line: str) -> None:
    assert type(parse_cause(f"{PYTHON}{line}\n\tat org.apache.spark.Task.run")) is Unavailable


class Ended(Exception):
    """As PySpark has a query's end: its own words are Java's, and those of its cause, where it came
    from, stand apart.
    """

    def __init__(self, said: str, kind: str) -> None:
        super().__init__(f"{said}\n=== Streaming Query ===\nCurrent State: ACTIVE")
        self._cause = Exception(said)
        self._cause._stackTrace = (  # type: ignore[attr-defined]
            f"{kind}\n\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:386)\n"
            "\tat "
            "org.apache.spark.sql.execution.python.streaming.PythonStreamingSourceRunner.partitions("
            "PythonStreamingSourceRunner.scala:173)"
        )


def test_a_planner_that_was_lost_is_begun_again_though_java_has_no_words_for_it() -> None:
    error = parse_cause(query_error_text(Ended("null", "java.io.EOFException")))
    assert type(error) is Unavailable
    assert "the Python process that plans" in str(error)


def test_where_java_has_words_its_stack_decides_nothing() -> None:
    assert isinstance(
        parse_cause(query_error_text(Ended("a bug", "java.io.EOFException"))), EtlStop
    )
    assert isinstance(
        parse_cause(query_error_text(Ended("null", "java.lang.NullPointerException"))), EtlStop
    )
    assert isinstance(parse_cause(query_error_text(None)), EtlStop)


@pytest.mark.parametrize(
    "line",
    [
        "hourmark_etl.errors.EtlStop: a record of the control topic hosts",
        "ZeroDivisionError: division by zero",
        "AttributeError: 'NoneType' object has no attribute 'makefile'",
        "AssertionError: pieces of events.click leave a gap",
    ],
)
def test_a_fault_of_the_program_stops_the_driver_and_says_what(line: str) -> None:
    error = parse_cause(f"{PYTHON}{line}")
    assert isinstance(error, EtlStop)
    assert line.partition(": ")[2] in str(error)


def test_an_error_of_ours_outweighs_what_the_network_said_beside_it() -> None:
    text = (
        f"{PYTHON}ConnectionResetError: Connection reset by "
        f"peer\n{PYTHON}hourmark_etl.errors.TopicReplaced: it is another topic"
    )
    assert not isinstance(parse_cause(text), Unavailable)
