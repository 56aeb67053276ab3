"""Which cases of a parametrized test run in the quick tier, in the whole suite and in the long one."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet


def representative(
    cases: Sequence[Any], keep: int = 1, long: Container[Any] = ()
) -> list[ParameterSet]:
    """Return all cases, of which all but `keep` are marked `slow`, and those in `long` `long`.

    The cases that are kept are spread evenly; the first is always one of them. A case that is a
    tuple has a value for each argument of the test.
    """
    kept = {at * len(cases) // keep for at in range(keep)}
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=pytest.mark.long if case in long else () if at in kept else pytest.mark.slow,
        )
        for at, case in enumerate(cases)
    ]
