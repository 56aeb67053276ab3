"""The measured coefficients of the sizing model, and the measurements behind them."""

from __future__ import annotations

import dataclasses
import json
from importlib import resources
from pathlib import Path
from typing import Any, Final

from hourmark.errors import UsageError
from hourmark_evaluate.sizing.fitting import Measurement, fit, off_by
from hourmark_evaluate.sizing.model import Coefficients

MEASURED: Final = "measured.json"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Measurements of the CPU and bytes that loads need, to fit and to check the sizing model.

    Attributes:
        about: When, on which machine and for which commit they were made.
        fitted: Measurements to which the coefficients are fitted.
        checked: Measurements of other loads, used to determine the model's error.
    """

    about: dict[str, Any]
    fitted: list[Measurement]
    checked: list[Measurement]

    @property
    def coefficients(self) -> Coefficients:
        """Return the coefficients fitted to the measurements in `fitted`."""
        return fit(self.fitted)

    def off(self) -> list[dict[str, float]]:
        """Return the model's relative error for each measurement in `checked`.

        Returns:
            One dict per measurement: the relative error by component, and under "all" that of the
            total; 0.1 means that the model predicts 10 % more CPU than measured.
        """
        return [off_by(one, self.coefficients) for one in self.checked]

    def as_object(self) -> dict[str, Any]:
        """Return the measurements as a JSON-serializable dict, in the file format of `read`."""
        kept = {
            name: [one.as_object() for one in getattr(self, name)] for name in ("fitted", "checked")
        }
        return {"about": self.about, **kept}


def read(path: Path | None = None) -> Measured:
    """Read measurements from a file.

    Args:
        path: JSON file as written by `hourmark bench size --json`; None for the measurements that
            are part of this package.

    Raises:
        UsageError: The file cannot be read or contains no valid measurements.
    """
    try:
        text = path.read_text() if path else (resources.files(__package__) / MEASURED).read_text()
        found = json.loads(text)
        kept = {
            name: [Measurement.of(one) for one in found[name]] for name in ("fitted", "checked")
        }
        return Measured(about=found["about"], **kept)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path or MEASURED} holds no measurements ({error!r}); make them: hourmark "
            "bench size --json"
        ) from error
