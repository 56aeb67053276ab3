"""Coefficients of the sizing model from measurements. All functions are pure.

Costs are fitted by non-negative least squares. Each measurement is weighted by the inverse of its
measured value, so that a small load counts as much as a large one. `off_by` determines the error
for loads to which the coefficients were not fitted.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hourmark_evaluate.sizing.model import BY_BUCKET, Coefficients, Cost, Load


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The CPU and bytes that were measured under one load.

    Attributes:
        load: The load.
        cores: CPU seconds per second, by component.
        sent: Bytes sent to the delivery service per byte of log line.
        topic: Bytes in one replica of a Kafka topic per byte of log line.
        bucket: Bytes in a closed bucket per byte of log line.
    """

    load: Load
    cores: Mapping[str, float]
    sent: float
    topic: float
    bucket: float

    def as_object(self) -> dict[str, Any]:
        """Return the measurement as a JSON-serializable dict, from which `of` restores it."""
        return dataclasses.asdict(self)

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Measurement:
        """Create a measurement from the dict that `as_object` returns.

        Raises:
            KeyError: The load is missing.
            TypeError: A field is missing or unknown.
        """
        return cls(**{**found, "load": Load(**found["load"])})


def fit(measured: Sequence[Measurement]) -> Coefficients:
    """Fit the coefficients of the sizing model to measurements.

    Args:
        measured: At least one measurement. They should differ in rate, event size and number of
            buckets, and must have the same components.

    Returns:
        CPU costs by non-negative least squares, and the medians of the byte ratios.
    """
    names = measured[0].cores
    loads = [m.load for m in measured]
    costs = {
        name: _fit_one(loads, [m.cores[name] for m in measured], by_bucket=name in BY_BUCKET)
        for name in names
    }
    sent, topic, bucket = (
        statistics.median(getattr(m, way) for m in measured) for way in ("sent", "topic", "bucket")
    )
    return Coefficients(costs=costs, sent=sent, topic=topic, bucket=bucket)


def off_by(measured: Measurement, coefficients: Coefficients) -> dict[str, float]:
    """Return the relative error of the predicted CPU for one measurement.

    Returns:
        The error by component, and under "all" that of the total; 0.1 means that the model predicts
        10 % more CPU than measured.
    """
    predicted = {name: coefficients.costs[name].cores(measured.load) for name in measured.cores}
    by_component = {name: predicted[name] / cores - 1 for name, cores in measured.cores.items()}
    return by_component | {"all": sum(predicted.values()) / sum(measured.cores.values()) - 1}


def _fit_one(loads: Sequence[Load], cores: Sequence[float], *, by_bucket: bool) -> Cost:
    weights = 1 / np.maximum(np.array(cores), 1e-6)
    rows = np.array(
        [_row(load, load.buckets_per_second if by_bucket else float(load.types)) for load in loads]
    )
    there, event, kb, last = map(
        float, _without_negatives(rows * weights[:, None], np.array(cores) * weights)
    )
    return Cost(there, event, kb, **{"bucket" if by_bucket else "type": last})


def _row(load: Load, last: float) -> list[float]:
    return [1.0, load.events_per_second, load.events_per_second * load.event_bytes / 1000, last]


def _without_negatives(
    rows: npt.NDArray[np.float64], values: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the non-negative least-squares solution.

    The function tries all combinations of columns, which is feasible because there are few.
    """
    best, least = np.zeros(rows.shape[1]), float("inf")
    for count in range(1, rows.shape[1] + 1):
        for chosen in itertools.combinations(range(rows.shape[1]), count):
            part, *_ = np.linalg.lstsq(rows[:, chosen], values, rcond=None)
            error = float(np.sum((rows[:, chosen] @ part - values) ** 2))
            if (part >= 0).all() and error < least - 1e-12:
                least, best = error, np.zeros(rows.shape[1])
                best[list(chosen)] = part
    return best
