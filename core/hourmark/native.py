"""The compiled module, made of `core/native`: what is done to each line and each record, for the rooms that have many of them.

It is never needed: where there is none, its users do the same in Python, at several times the CPU.
"""

from __future__ import annotations

from types import ModuleType
from typing import Final

SOURCES: Final = "50417964acb6b9db"  # the digest of `core/native`, as `native_build` has it


def load() -> tuple[ModuleType | None, str]:
    """The module; or None, and why."""
    try:
        from hourmark import _native
    except ImportError as error:
        return None, f"the compiled module is not there ({error}): Python does its work alone, at several times the CPU"
    if getattr(_native, "sources", str)() != SOURCES:
        return None, "the compiled module was made of other sources than this software: Python does its work alone"
    return _native, ""


MODULE, WHY_NOT = load()
