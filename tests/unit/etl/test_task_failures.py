"""Errors that cross Spark as values: what they become, and that none is ignored."""

from __future__ import annotations

import errno
import pickle
import socket
from collections.abc import Iterator
from typing import Any, Final

import pytest
from pyspark.sql import Row

from hourmark.errors import ConfigError, Finding, HourmarkError, Unavailable
from hourmark.kafka.clients import Partition
from hourmark.kafka.partitions_reader import DamagedBatch, LogTruncated, PartitionError
from hourmark_etl.errors import (
    BadRecord,
    DamagedRow,
    DataLoss,
    EtlStop,
    StaleDriver,
    TopicReplaced,
    Unreadable,
)
from hourmark_etl.execution.task_failures import (
    TaskFailure,
    catch_task_failure,
    raise_failures,
    to_hourmark_error,
)
from hourmark_etl.staging.pieces import StagedChunk
from hourmark_etl.staging.planner import pack_result, unpack_results
from hourmark_etl.staging.stage import TaskResult
from hourmark_etl.storage import NoSpace, SafeMode

AT: Final = Partition("events.click", 3)
RESULT: Final = TaskResult(StagedChunk(), ())


class NeedsTwoArguments(Unavailable):
    """An error that pickles, but cannot be unpickled."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"{what} at {where}")


@pytest.mark.parametrize(
    "error",
    [
        BadRecord("hourmark.hosts", 3, 41, "not a report"),
        DamagedRow("buckets", "click", "click"),
        DamagedBatch("bad CRC", AT, 41),
        LogTruncated("it lost records", AT, 41),
        PartitionError("no leader", AT, 41),
        Unreadable("_staging/x", "gone", "click"),
        NoSpace("_staging/x", "hdfs://n/_staging/x", "the quota is used up"),
        SafeMode("", "hdfs://n/", "read-only"),
        ConfigError("etl.tasks: 0 is not a positive number"),
        StaleDriver("another driver stages this shard"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_keeps_class_message_and_fields(error: HourmarkError) -> None:
    again = pickle.loads(pickle.dumps(TaskFailure.from_error(error))).error
    assert type(again) is type(error)
    assert (str(again), vars(again)) == (str(error), vars(error))


def test_every_error_of_the_etl_can_be_rebuilt_from_a_pickle() -> None:
    """An exception with fields must pass all of them to its base class."""

    def all_of(kind: type[HourmarkError]) -> Iterator[type[HourmarkError]]:
        yield kind
        for narrower in kind.__subclasses__():
            yield from all_of(narrower)

    own = {
        kind
        for kind in all_of(HourmarkError)
        if "__init__" in vars(kind)
        and kind.__module__.startswith(("hourmark.kafka", "hourmark.errors", "hourmark_etl."))
    }
    assert {PartitionError, BadRecord, DamagedRow, Unreadable} < own
    for kind in own:
        code = kind.__init__.__code__
        error = kind(*range(1, code.co_argcount))
        assert error.args == tuple(range(1, code.co_argcount)), kind


def test_an_error_that_cannot_be_unpickled_becomes_one_of_its_base_class() -> None:
    error = TaskFailure.from_error(NeedsTwoArguments("a fault", "a place")).error
    assert (type(error), str(error)) == (Unavailable, "a fault at a place")


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"),
        ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
        BrokenPipeError(errno.EPIPE, "Broken pipe"),
        TimeoutError("timed out"),
        socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
        OSError(errno.EHOSTUNREACH, "No route to host"),
        OSError(errno.ENETUNREACH, "Network is unreachable"),
    ],
    ids=lambda error: f"{type(error).__name__} {error.errno}",
)
def test_a_network_error_is_a_server_that_is_unavailable(error: OSError) -> None:
    wrapped = RuntimeError("no schemas")
    wrapped.__cause__ = error
    for one in (error, wrapped):
        found = to_hourmark_error(one)
        assert type(found) is Unavailable
        assert str(error) in str(found)


def test_an_own_error_outweighs_the_network_error_it_was_raised_from() -> None:
    own = TopicReplaced("it is another topic")
    own.__cause__ = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
    assert to_hourmark_error(own) is own
    outer = KeyError("x")
    outer.__context__ = own
    assert to_hourmark_error(outer) is own


@pytest.mark.parametrize(
    "error",
    [
        ZeroDivisionError("division by zero"),
        AssertionError("pieces of events.click leave a gap"),
        OSError(errno.ENOSPC, "No space left on device"),
        MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_defect_stops_the_driver_with_its_traceback(error: Exception) -> None:
    found = to_hourmark_error(error)
    assert type(found) is EtlStop
    assert "staging has stopped" in str(found)
    assert type(error).__name__ in str(found) and str(error) in str(found)


@pytest.mark.parametrize(
    ("error", "is_retried"),
    [
        (PartitionError("no leader", AT, 41), True),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), True),
        (MemoryError(), True),
        (DataLoss("gone"), False),
        (BadRecord("hourmark.hosts", 3, 41, "not a report"), False),
        (ConfigError("etl.tasks"), False),
        (Finding("a violation"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_spark_retries_what_another_attempt_may_avoid(error: Exception, is_retried: bool) -> None:
    def fails() -> Iterator[int]:
        yield 1
        raise error

    first = catch_task_failure(fails, attempts_max=2)
    assert next(first) == 1
    if is_retried:
        with pytest.raises(type(error)):
            next(first)
    else:
        assert type(next(first)) is TaskFailure
    assert isinstance([*catch_task_failure(fails, attempts_max=1)][-1], TaskFailure)


@pytest.mark.parametrize(
    ("errors", "raised"),
    [
        ([Unavailable("a"), DataLoss("b"), TopicReplaced("c"), StaleDriver("d")], TopicReplaced),
        ([Unavailable("a"), DataLoss("b")], DataLoss),
        ([NoSpace("a", "b", "c"), Unavailable("d")], NoSpace),
    ],
)
def test_the_most_severe_failure_is_raised(
    errors: list[HourmarkError], raised: type[HourmarkError]
) -> None:
    results: list[Any] = [RESULT, *(TaskFailure(error) for error in errors), RESULT]
    with pytest.raises(HourmarkError) as caught:
        raise_failures(results)
    assert type(caught.value) is raised


def row(result: TaskResult | TaskFailure) -> Row:
    (values,) = pack_result(result).to_pylist()
    return Row(**values)


@pytest.mark.slow
def test_results_with_a_failure_among_them_cannot_be_unpacked() -> None:
    assert unpack_results([row(RESULT), row(RESULT)]) == [RESULT, RESULT]
    assert unpack_results([]) == []
    for at in range(3):
        rows = [row(RESULT), row(RESULT)]
        rows.insert(at, row(TaskFailure(StaleDriver("another driver"))))
        with pytest.raises(StaleDriver, match="another driver"):
            unpack_results(rows)
