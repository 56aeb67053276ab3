"""Where units of work run: on Spark's executors, or in this process.

The work is a pure function of its item and of storage.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar, cast

from py4j.protocol import Py4JError
from pyspark import RDD
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from hourmark.errors import HourmarkError, Unavailable
from hourmark_etl.reused import spare_loaded

_CAUSE_MAX: Final = 1500
_Item = TypeVar("_Item")
_Part = TypeVar("_Part")
_Result = TypeVar("_Result")


class Runner:
    """Runs one function over many items, each perhaps more than once (a task that is tried again).

    This one: here, in turn.
    """

    def map(self, work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
        """Results in the order of items. The first HourmarkError of `work` is raised as it was."""
        return [work(item) for item in items]

    def gather(
        self,
        work: Callable[[_Item], Mapping[int, _Part]],
        items: Sequence[_Item],
        merge: Callable[[Sequence[_Part]], _Result],
        keys: int,  # noqa: ARG002  # there is one place
    ) -> list[_Result]:
        """`work` gives parts by key, of 0 to `keys` - 1; all parts of a key are merged at one
        place, so that none holds them all.

        Results in no order, none for a key without parts. Errors as of `map`.
        """
        parts = defaultdict[int, list[_Part]](list)
        for item in items:
            for key, part in work(item).items():
                parts[key].append(part)
        return [merge(parts[key]) for key in sorted(parts)]


@dataclasses.dataclass(frozen=True)
class OnSpark(Runner):
    """One Spark job, one task an item. `work`, items, results and errors must pickle.

    Unavailable where a task failed in another way: the closer tries again at its next poll.
    """

    spark: SparkSession

    def map(self, work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
        """See `Runner`."""
        return self._collected(items, lambda given: given.map(functools.partial(_guarded, work)))

    def gather(
        self,
        work: Callable[[_Item], Mapping[int, _Part]],
        items: Sequence[_Item],
        merge: Callable[[Sequence[_Part]], _Result],
        keys: int,
    ) -> list[_Result]:
        """See `Runner`: one job of two stages, one task a key in the second."""

        def parts(item: _Item) -> list[tuple[int, object]]:
            outcome = _guarded(work, item)
            return (
                [(0, outcome)]
                if isinstance(outcome, _Failed)
                else list(cast(Mapping[int, object], outcome).items())
            )

        def together(found: Iterable[object]) -> object:
            taken = list(found)
            return next((p for p in taken if isinstance(p, _Failed)), None) or _guarded(
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
        if failed := next((outcome for outcome in outcomes if isinstance(outcome, _Failed)), None):
            raise failed.error
        return outcomes


class _Failed(NamedTuple):
    """An error that the driver must see as it is: as a failed task it would be tried again, and
    arrive as text.
    """

    error: HourmarkError


def _guarded(work: Callable[..., object], item: object) -> object:
    spare_loaded()
    try:
        return work(item)
    except HourmarkError as error:
        return _Failed(error)
