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
from hourmark_etl.execution.task_failures import TaskFailure
from hourmark_etl.execution.worker_reuse import freeze_loaded_modules

_CAUSE_MAX: Final = 1500
_Item = TypeVar("_Item")
_Part = TypeVar("_Part")
_Result = TypeVar("_Result")


class Runner:
    """Calls a function with each of several items, one after the other in this process.

    Subclasses may run the calls in parallel in other processes and repeat them after a failure.
    The function must therefore be idempotent.
    """

    def map(self, work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
        """Call a function with each item and return the results in the order of the items.

        Args:
            work: Function to call. It must be idempotent.
            items: Arguments of the calls.

        Returns:
            One result per item; empty if there are no items.

        Raises:
            HourmarkError: The function raised this error. The remaining items are not processed.
        """
        return [work(item) for item in items]

    def gather(
        self,
        work: Callable[[_Item], Mapping[int, _Part]],
        items: Sequence[_Item],
        merge: Callable[[Sequence[_Part]], _Result],
        keys: int,  # noqa: ARG002  # there is one place
    ) -> list[_Result]:
        """Call a function with each item, group the returned parts by key, and merge each group.

        Args:
            work: Function that returns parts by key. Keys range from 0 to `keys` - 1.
            items: Arguments of the calls.
            merge: Function that merges all parts of one key. Subclasses may call it in several
                processes, so that no process holds all parts.
            keys: Number of possible keys.

        Returns:
            One merged result per key that has parts, in no particular order; empty if there are no
            items.

        Raises:
            HourmarkError: One of the functions raised this error.
        """
        parts = defaultdict[int, list[_Part]](list)
        for item in items:
            for key, part in work(item).items():
                parts[key].append(part)
        return [merge(parts[key]) for key in sorted(parts)]


@dataclasses.dataclass(frozen=True)
class SparkRunner(Runner):
    """Calls a function with each of several items, as one Spark job with one task per item.

    Functions, items, results and errors must be picklable. If the job fails with an error other
    than a `HourmarkError`, `Unavailable` is raised, and the caller may try again.

    Attributes:
        spark: Spark session of the driver.
    """

    spark: SparkSession

    def map(self, work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
        """Call a function with each item in a separate Spark task and return the results in order.

        Args:
            work: Function to call. It must be picklable and idempotent.
            items: Arguments of the calls, one per task.

        Returns:
            One result per item. If there are no items, no job is started and the list is empty.

        Raises:
            HourmarkError: The function raised this error in a task.
            Unavailable: The Spark job failed for another reason.
        """
        return self._collected(items, lambda given: given.map(functools.partial(_guarded, work)))

    def gather(
        self,
        work: Callable[[_Item], Mapping[int, _Part]],
        items: Sequence[_Item],
        merge: Callable[[Sequence[_Part]], _Result],
        keys: int,
    ) -> list[_Result]:
        """Call a function with each item in Spark tasks, and merge the returned parts by key.

        The first stage of the job has one task per item. The tasks of the second stage merge the
        parts.

        Args:
            work: Function that returns parts by key. Keys range from 0 to `keys` - 1.
            items: Arguments of the calls.
            merge: Function that merges all parts of one key.
            keys: Number of possible keys.

        Returns:
            One merged result per key that has parts, in no particular order. If there are no items,
            no job is started and the list is empty.

        Raises:
            HourmarkError: One of the functions raised this error in a task.
            Unavailable: The Spark job failed for another reason.
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
                f"a Spark job of closing failed and will be retried: {str(error)[-_CAUSE_MAX:]}"
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
