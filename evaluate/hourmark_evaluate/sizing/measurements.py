"""Measurements of loads, and the coefficients of the sizing model that are fitted to them.

Costs are fitted by non-negative least squares. Each measurement is weighted by the inverse of its
measured value, so that a small load counts as much as a large one. `relative_errors` determines the
error for loads to which the coefficients were not fitted. `read_measurements` reads the
measurements of this package, `measured.json`, or those of the user.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import statistics
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hourmark.errors import UsageError
from hourmark_evaluate.sizing.model import BY_BUCKET, Coefficients, CpuCost, Load


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoadMeasurement:
    """The CPU time and data volumes that were measured under one load.

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
        """Convert the measurement to a JSON-serializable dict. `from_object` is the inverse."""
        return dataclasses.asdict(self)

    @classmethod
    def from_object(cls, values: Mapping[str, Any]) -> LoadMeasurement:
        """Create a measurement from the dict that `as_object` returns.

        Raises:
            KeyError: The load is missing.
            TypeError: A field is missing or unknown.
        """
        return cls(**{**values, "load": Load(**values["load"])})


def fit_coefficients(measured: Sequence[LoadMeasurement]) -> Coefficients:
    """Fit the coefficients of the sizing model to measurements.

    Args:
        measured: At least one measurement. The measurements must have the same components, and
            should differ in rate, event size and number of buckets.

    Returns:
        CPU costs, fitted by non-negative least squares, and medians of the byte ratios.
    """
    names = measured[0].cores
    loads = [m.load for m in measured]
    costs = {
        name: _fit_component(loads, [m.cores[name] for m in measured], by_bucket=name in BY_BUCKET)
        for name in names
    }
    sent, topic, bucket = (
        statistics.median(getattr(m, way) for m in measured) for way in ("sent", "topic", "bucket")
    )
    return Coefficients(costs=costs, sent=sent, topic=topic, bucket=bucket)


def relative_errors(measured: LoadMeasurement, coefficients: Coefficients) -> dict[str, float]:
    """Compare the CPU time that the sizing model predicts for a load with the measured CPU time.

    Args:
        measured: The measurement.
        coefficients: Coefficients of the model.

    Returns:
        The relative error of each component, and that of the total under the key "all". For
        example, 0.1 means that the model predicts 10 % more CPU time than was measured.
    """
    predicted = {
        name: coefficients.costs[name].predict_cores(measured.load) for name in measured.cores
    }
    by_component = {name: predicted[name] / cores - 1 for name, cores in measured.cores.items()}
    return by_component | {"all": sum(predicted.values()) / sum(measured.cores.values()) - 1}


def _fit_component(loads: Sequence[Load], cores: Sequence[float], *, by_bucket: bool) -> CpuCost:
    weights = 1 / np.maximum(np.array(cores), 1e-6)
    rows = np.array(
        [
            _regressors(load, load.buckets_per_second if by_bucket else float(load.types))
            for load in loads
        ]
    )
    constant, event, kb, last = map(
        float, _nonnegative_least_squares(rows * weights[:, None], np.array(cores) * weights)
    )
    return CpuCost(constant, event, kb, **{"bucket" if by_bucket else "type": last})


def _regressors(load: Load, last: float) -> list[float]:
    return [1.0, load.events_per_second, load.events_per_second * load.event_bytes / 1000, last]


def _nonnegative_least_squares(
    rows: npt.NDArray[np.float64], values: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    # Tries all combinations of columns, which is feasible because there are few.
    best, least = np.zeros(rows.shape[1]), float("inf")
    for count in range(1, rows.shape[1] + 1):
        for chosen in itertools.combinations(range(rows.shape[1]), count):
            part, *_ = np.linalg.lstsq(rows[:, chosen], values, rcond=None)
            error = float(np.sum((rows[:, chosen] @ part - values) ** 2))
            if (part >= 0).all() and error < least - 1e-12:
                least, best = error, np.zeros(rows.shape[1])
                best[list(chosen)] = part
    return best


MEASURED: Final = "measured.json"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SizingMeasurements:
    """Measurements of several loads, used to fit and check the sizing model.

    Attributes:
        about: When, on which machine and for which commit the measurements were made.
        fitted: Measurements to which the coefficients are fitted.
        checked: Measurements of other loads, used to determine the model's error.
    """

    about: dict[str, Any]
    fitted: list[LoadMeasurement]
    checked: list[LoadMeasurement]

    @property
    def coefficients(self) -> Coefficients:
        """Fit the coefficients of the sizing model to the measurements in `fitted`."""
        return fit_coefficients(self.fitted)

    def model_errors(self) -> list[dict[str, float]]:
        """Return the model's relative error for each measurement in `checked`.

        Returns:
            One dict per measurement, with the relative error of each component, and that of the
            total under the key "all". For example, 0.1 means that the model predicts 10 % more CPU
            time than was measured.
        """
        return [relative_errors(one, self.coefficients) for one in self.checked]

    def as_object(self) -> dict[str, Any]:
        """Convert the measurements to a JSON-serializable dict.

        Returns:
            The keys `about`, `fitted` and `checked`. `read_measurements` reads this format.
        """
        kept = {
            name: [one.as_object() for one in getattr(self, name)] for name in ("fitted", "checked")
        }
        return {"about": self.about, **kept}


def read_measurements(path: Path | None = None) -> SizingMeasurements:
    """Read measurements from a file.

    Args:
        path: JSON file as written by `hourmark bench size --json`; None for the measurements in
            this package.

    Raises:
        UsageError: The file cannot be read or contains no valid measurements.
    """
    try:
        text = path.read_text() if path else (resources.files(__package__) / MEASURED).read_text()
        found = json.loads(text)
        kept = {
            name: [LoadMeasurement.from_object(one) for one in found[name]]
            for name in ("fitted", "checked")
        }
        return SizingMeasurements(about=found["about"], **kept)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path or MEASURED} contains no valid measurements ({error!r}); create the file with "
            "`hourmark bench size --json`"
        ) from error
