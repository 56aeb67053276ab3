"""Loading of the compiled module, which processes lines and records in bulk.

The module is optional: without it, its users run equivalent Python code at several times the CPU
cost. Its source is in `native/src`.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Final

SOURCES: Final = "be7fb14a2caa7f81"  # digest of `src/`, as `native_build.digest` computes it

_FALLBACK: Final = (
    "Python code is used instead, at several times the CPU cost. Next step: reinstall "
    "hourmark-native; its wheel contains the module, or a C compiler can build it"
)


def load_native_module(name: str = "hourmark_native._native") -> tuple[ModuleType | None, str]:
    """Import the compiled extension module, which processes log lines and records in bulk.

    If the module is unavailable, no exception is raised, and callers use equivalent Python code.

    Args:
        name: Dotted name of the module.

    Returns:
        The module and an empty string. If the module is missing, or was compiled from a different
        version of its C sources, None and a message with the reason.
    """
    try:
        found = importlib.import_module(name)
    except ImportError as error:
        return None, f"the compiled module is not available ({error}): {_FALLBACK}"
    if getattr(found, "sources", str)() != SOURCES:
        return None, f"the compiled module was built from other sources: {_FALLBACK}"
    return found, ""


MODULE, WHY_NOT = load_native_module()
