"""All faults that are planted, by name: importing a module of them is what fills `FAULTS`."""

from __future__ import annotations

from tests.unit.verify.judge import false_lines, false_markers
from tests.unit.verify.judge.planting import FAULTS

__all__ = ["FAULTS", "false_lines", "false_markers"]
