"""Expressions mean the same in every Python that is supported.

Until 3.11.4 a possessive quantifier over several things goes on after what its last, failed
repetition had taken (gh-106052): lines of RFC 5424 were read otherwise than their rules revision
says, and on Debian 12, with 3.11.2, the service refused to start.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import pytest

from hourmark_delivery_service import parsing


def expressions() -> Iterator[tuple[str, re.Pattern[Any]]]:
    for module in pkgutil.iter_modules(parsing.__path__, f"{parsing.__name__}."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, re.Pattern):
                yield f"{module.name}.{name}", value


def risky(pattern: str | bytes, flags: int = 0) -> list[str]:
    """Possessive repetitions of what may fail after it took something, and is not atomic."""
    parser: Any = importlib.import_module(
        "re._parser"
    )  # the only parser of expressions that there is
    return [str(body) for body in _repeated(parser.parse(pattern, flags)) if not _safe(body)]


def _repeated(node: Any) -> Iterator[Any]:
    if str(node[0] if isinstance(node, tuple) and node else "") == "POSSESSIVE_REPEAT":
        yield node[1][2]
    if not isinstance(node, str | bytes | int):
        for inner in node if hasattr(node, "__iter__") else getattr(node, "data", ()):
            yield from _repeated(inner)


def _safe(body: Any) -> bool:
    """One thing; or a choice of such, where an escape, with whatever follows it, fails at the
    text's end only.
    """
    items = list(body)
    if len(items) != 1:
        return False
    kind, value = str(items[0][0]), items[0][1]
    if kind == "BRANCH":
        return all(len(branch) == 1 or _escape(list(branch)) for branch in value[1])
    return kind in ("ATOMIC_GROUP", "LITERAL", "NOT_LITERAL", "IN", "ANY")


def _escape(branch: list[Any]) -> bool:
    (first, char), (second, _) = branch if len(branch) == 2 else ((None, None), (None, None))
    return (str(first), char, str(second)) == ("LITERAL", ord("\\"), "ANY")


@pytest.mark.parametrize(
    ("name", "expression"), [pytest.param(*found, id=found[0]) for found in expressions()]
)
def test_no_expression_repeats_possessively_what_may_fail_halfway(
    name: str, expression: re.Pattern[Any]
) -> None:
    assert risky(expression.pattern, expression.flags & ~re.UNICODE) == []


@pytest.mark.parametrize(
    "pattern", [r"(?:ab)*+", r"x(?:[^,]+,)++y", r"(?:\\a|b)*+", r"(?:(?:ab)*+c)"]
)
def test_one_that_does_is_noticed(pattern: str) -> None:
    assert risky(pattern)


@pytest.mark.parametrize(
    "pattern", [r"(?>ab)*+", r"[ab]*+", r"(?:[^\"\\]|\\.)*+", r"(?>(?>ab)++c)*+"]
)
def test_one_that_does_not_is_left_alone(pattern: str) -> None:
    assert risky(pattern) == []
