"""Which compiled module is used: one of these very sources, and no other."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from tools.fuzz_native import build_tool

import hourmark_native as native


@pytest.mark.parametrize("other", [SimpleNamespace(), SimpleNamespace(sources=lambda: "0" * 16)])
def test_a_module_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch, other: Any) -> None:
    monkeypatch.setitem(sys.modules, "other_native", other)
    module, why_not = native.load_native_module("other_native")
    assert module is None
    assert "built from other sources" in why_not


def test_the_sources_that_it_takes_are_those_that_are_there() -> None:
    assert build_tool().digest() == native.SOURCES, (
        "write this digest into hourmark_native/__init__.py: the sources have changed"
    )
