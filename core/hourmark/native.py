"""The compiled module, made of `core/native`: what is done to each line and each record, for the
rooms that have many of them.

It is never needed: where there is none, its users do the same in Python, at several times the CPU.
"""

from __future__ import annotations

from types import ModuleType
from typing import Final

SOURCES: Final = "ac0dfbdb77123ccb"  # the digest of `core/native`, as `native_build` computes it


_ALONE: Final = (
    "Python does its work alone, at several times the CPU. Next step: install hourmark anew; "
    "its wheel or a C compiler holds "
    "what is missing"
)


def load_native_module() -> tuple[ModuleType | None, str]:
    """The module; or None, and why."""
    try:
        from hourmark import _native
    except ImportError as error:
        return None, f"the compiled module is not there ({error}): {_ALONE}"
    if getattr(_native, "sources", str)() != SOURCES:
        return None, f"the compiled module was made of other sources than this software: {_ALONE}"
    return _native, ""


MODULE, WHY_NOT = load_native_module()
