"""Execution of units of work: on Spark's executors, or in this process.

Each unit is a pure function of its input and of storage.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from py4j.protocol import Py4JError
from pyspark import RDD
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from hourmark.errors import HourmarkError, Unavailable
from hourmark_etl.task_failures import TaskFailure
from hourmark_etl.worker_reuse import freeze_loaded_modules

_CAUSE_MAX: Final = 1500
_Item = TypeVar("_Item")
_Part = TypeVar("_Part")
_Result = TypeVar("_Result")


class Runner:
    """Runs a function on many items, sequentially in this process.

    Other runners may run the function more than once per item, so it must be repeatable.
    """

    def map(self, work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
        """Return the function's result for each item, in order.

        Raises:
            HourmarkError: The first error that the function raised, unchanged.
        """
        return [work(item) for item in items]

    def gather(
        self,
        work: Callable[[_Item], Mapping[int, _Part]],
        items: Sequence[_Item],
        merge: Callable[[Sequence[_Part]], _Result],
        keys: int,  # noqa: ARG002  # there is one place
    ) -> list[_Result]:
        """Run a function on each item, group the parts it returns by key, and merge each group.

        Args:
            work: Returns parts by key, with keys from 0 to `keys` - 1.
            items: The items.
            merge: Merges all parts of one key. Distributed runners call it in separate tasks, so
                that no process holds all parts.
            keys: The number of keys.

        Returns:
            One result per key that has parts, in no particular order.

        Raises:
            HourmarkError: The first error that a function raised, unchanged.
        """
        parts = defaultdict[int, list[_Part]](list)
        for item in items:
            for key, part in work(item).items():
                parts[key].append(part)
        return [merge(parts[key]) for key in sorted(parts)]


@dataclasses.dataclass(frozen=True)
class SparkRunner(Runner):
    """Runs each function as one Spark job with one task per item.

    Functions, items, results and errors must be picklable. If a task fails in any other way than by
    a `HourmarkError`, the methods raise `Unavailable`, and the closer's next poll tries again.
    """

    spark: SparkSession

    def map(self, work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
        """Run one Spark task per item and return the results in order; see `Runner.map`.

        Raises:
            Unavailable: The Spark job failed.
        """
        return self._collected(items, lambda given: given.map(functools.partial(_guarded, work)))

    def gather(
        self,
        work: Callable[[_Item], Mapping[int, _Part]],
        items: Sequence[_Item],
        merge: Callable[[Sequence[_Part]], _Result],
        keys: int,
    ) -> list[_Result]:
        """Run a Spark job of two stages: one task per item, then one per key; see `Runner.gather`.

        Raises:
            Unavailable: The Spark job failed.
        """

        def parts(item: _Item) -> list[tuple[int, object]]:
            outcome = _guarded(work, item)
            return (
                [(0, outcome)]
                if isinstance(outcome, TaskFailure)
                else list(cast(Mapping[int, object], outcome).items())
            )

        def together(found: Iterable[object]) -> object:
            taken = list(found)
            return next((p for p in taken if isinstance(p, TaskFailure)), None) or _guarded(
                merge, taken
            )

        return self._collected(
            items, lambda given: given.flatMap(parts).groupByKey(keys).mapValues(together).values()
        )

    def _collected(
        self, items: Sequence[_Item], job: Callable[[RDD[_Item]], RDD[Any]]
    ) -> list[Any]:
        if not items:
            return []
        try:
            outcomes = job(self.spark.sparkContext.parallelize(items, len(items))).collect()
        except (PySparkException, Py4JError) as error:
            raise Unavailable(
                f"a Spark job of closing failed, and is tried again: {str(error)[-_CAUSE_MAX:]}"
            ) from error
        if failed := next((found for found in outcomes if isinstance(found, TaskFailure)), None):
            raise failed.error
        return outcomes


def _guarded(work: Callable[..., object], item: object) -> object:
    freeze_loaded_modules()
    try:
        return work(item)
    except HourmarkError as error:
        return TaskFailure.from_error(error)
