"""Deletion of a stack's data; a deletion interrupted by kill -9 is completed by the next call."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from hourmark_infra.jars.cache import Say
from hourmark_infra.stack.control import Stack
from hourmark_infra.stack.layout import stack_root
from hourmark_infra.stack.state import state_file


def purge_stack(home: Path, say: Say) -> bool:
    """Stop the stack in the folder `home` and delete its data.

    The stack's folder is deleted only if it contains a state file. It is renamed first, so that a
    partly deleted stack is never used.

    Returns:
        True if data was deleted, false if there was nothing to delete.
    """
    if state_file(home).exists():
        Stack.load(home, say).down()
        stack_root(home).rename(home / f"stack.purged-{os.getpid()}")
    purged = [*home.glob("stack.purged-*")]
    for rest in purged:
        shutil.rmtree(rest)
    return bool(purged)
