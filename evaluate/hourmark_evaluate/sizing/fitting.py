"""Coefficients from measurements. Pure.

Costs are fitted by least squares without negative ones (a part that would be is left out), each
measurement weighted by what was measured, so that a small load counts as much as a large one. What
they say of a load that they were not fitted to is compared.
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
    """One load, as it was: seconds of CPU a second, by component, and bytes of a byte of line on
    each way.
    """

    load: Load
    cores: Mapping[str, float]
    sent: float
    topic: float
    bucket: float

    def as_object(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Measurement:
        """From JSON."""
        return cls(**{**found, "load": Load(**found["load"])})


def fit(measured: Sequence[Measurement]) -> Coefficients:
    """From several loads, of different rates, sizes and buckets."""
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
    """Predicted over measured, less 1, by component and of all together."""
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
    """The best of all choices of columns whose solution has no negative part; there are few
    columns.
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
