"""Where units of work run: on Spark's executors, or in this process. The work is a pure function of its item and of storage."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar, cast

from pyspark.sql import SparkSession

from hourmark.errors import HourmarkError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Runner(Protocol):
    """Runs one function over many items, each perhaps more than once (a task that is tried again)."""

    def map(self, work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
        """Results in the order of items. The first HourmarkError of `work` is raised as it was."""
        ...


@dataclasses.dataclass(frozen=True)
class InProcess:
    """One after the other, here."""

    def map(self, work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
        """See `Runner`."""
        return [work(item) for item in items]


@dataclasses.dataclass(frozen=True)
class OnSpark:
    """One Spark job, one task an item. `work`, items, results and errors must pickle."""

    spark: SparkSession

    def map(self, work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
        """See `Runner`. A Spark error where a task failed in another way."""
        if not items:
            return []
        outcomes = self.spark.sparkContext.parallelize(items, len(items)).map(_Guarded(work)).collect()
        results: list[_Result] = []
        for outcome in outcomes:
            if isinstance(outcome, _Failed):
                raise outcome.error
            results.append(cast(_Result, outcome))
        return results


@dataclasses.dataclass(frozen=True)
class _Failed:
    """An error that the driver must see as it is: as a failed task it would be tried again, and arrive as text."""

    error: HourmarkError


class _Guarded:
    def __init__(self, work: Callable[[_Item], _Result]) -> None:
        self._work: Callable[..., object] = work

    def __call__(self, item: object) -> object:
        try:
            return self._work(item)
        except HourmarkError as error:
            return _Failed(error)
