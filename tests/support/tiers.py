"""Which cases of a parametrized test run in the quick tier, in the whole suite and in the long one."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet


def representative(
    cases: Sequence[Any], keep: int = 1, suite: int = 1, long: Container[Any] = ()
) -> list[ParameterSet]:
    """Return all cases with marks for the tiers.

    Args:
        cases: The cases. A case that is a tuple has a value for each argument of the test.
        keep: Number of cases in the quick tier; 0 if the test is too slow for it. Otherwise the
            first case is one of them.
        suite: Number of cases in the whole suite that are not in the quick tier; they are marked
            `slow`. All others are marked `long`.
        long: Cases that are marked `long` in any case, because they take over a minute.

    Returns:
        The cases in their order. Those in the quick tier and those in the suite are spread evenly.
    """
    kept = {at * len(cases) // keep for at in range(keep)}
    others = [at for at, case in enumerate(cases) if at not in kept and case not in long]
    slow = {others[at * len(others) // suite] for at in range(suite)} if others else set()
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=()
            if at in kept and case not in long
            else pytest.mark.slow
            if at in slow
            else pytest.mark.long,
        )
        for at, case in enumerate(cases)
    ]
