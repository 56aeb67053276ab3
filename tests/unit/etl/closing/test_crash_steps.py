"""Steps at which drivers are killed are steps of today's code: with an argument renamed they would
never come, or never end.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from typing import Any
from unittest.mock import MagicMock

import pytest
from tests.support.crash import STEPS


class Arguments(dict[str, Any]):
    """Of any value; KeyError for a name that is none of the function's."""

    def __init__(self, names: set[str]) -> None:
        super().__init__({name: MagicMock() for name in names})


@pytest.mark.parametrize(
    ("step", "function"), [(s, f) for s, step in STEPS.items() for f in step.functions]
)
def test_a_step_asks_for_arguments_that_its_function_has(step: str, function: str) -> None:
    module, _, qualified = function.partition(":")
    found: Any = functools.reduce(getattr, qualified.split("."), importlib.import_module(module))
    STEPS[step].counts(Arguments(set(inspect.signature(found).parameters)))
