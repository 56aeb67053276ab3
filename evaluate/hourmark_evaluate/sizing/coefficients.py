"""The measured coefficients, with what they were fitted to."""

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
    """`fitted`: their source; `checked`: loads that they were not fitted to. `about`: when, on
    what, of which commit.
    """

    about: dict[str, Any]
    fitted: list[Measurement]
    checked: list[Measurement]

    @property
    def coefficients(self) -> Coefficients:
        """Fitted."""
        return fit(self.fitted)

    def off(self) -> list[dict[str, float]]:
        """How far they are off, of each load that they were not fitted to: by component, and of all
        together.
        """
        return [off_by(one, self.coefficients) for one in self.checked]

    def as_object(self) -> dict[str, Any]:
        """For JSON."""
        kept = {
            name: [one.as_object() for one in getattr(self, name)] for name in ("fitted", "checked")
        }
        return {"about": self.about, **kept}


def read(path: Path | None = None) -> Measured:
    """Those of this file, as `hourmark bench size --json` writes it, or the ones that Hourmark
    brings. UsageError.
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
