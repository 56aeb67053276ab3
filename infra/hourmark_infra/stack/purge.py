"""Delete a stack's data: all of it, or, after a kill -9 in the middle, the rest at the next try."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from hourmark_infra.jars.cache import Say
from hourmark_infra.stack.control import Stack
from hourmark_infra.stack.layout import stack_root
from hourmark_infra.stack.state import state_file


def purge_stack(home: Path, say: Say) -> bool:
    """Stop the stack of this home and delete its folder; False where there was nothing to delete.

    Only a folder that holds a stack's state file is touched. It is renamed first, so that half a
    stack is never taken for one.
    """
    if state_file(home).exists():
        Stack.load(home, say).down()
        stack_root(home).rename(home / f"stack.purged-{os.getpid()}")
    purged = [*home.glob("stack.purged-*")]
    for rest in purged:
        shutil.rmtree(rest)
    return bool(purged)
