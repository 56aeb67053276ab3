"""The configuration whose types the local stack carries.

A stack carries the types of one configuration: applying another one would retire the first one's
types. `hourmark run` records the configuration, to explain this conflict.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from hourmark.process.durable import write_durably

_FILE: Final = Path("run/configuration")  # below the home
_STACK_CONFIG: Final = Path("stack/hourmark.toml")


def record_holder(home: Path, file: Path) -> None:
    """Record that the types of a configuration were applied to the local stack.

    Args:
        home: The `HOURMARK_HOME` folder of the stack.
        file: Absolute path of the configuration file.
    """
    write_durably(home / _FILE, os.fsencode(file))


def describe_conflict(home: Path, file: Path) -> str | None:
    """Describe why a configuration cannot be applied to a stack that holds another one.

    Args:
        home: The `HOURMARK_HOME` folder of the stack.
        file: Absolute path of the configuration file to be applied.

    Returns:
        A message with the next step. None if there is no stack, or if no other configuration that
        still exists was applied to it.
    """
    try:
        holder = Path(os.fsdecode((home / _FILE).read_bytes()))
    except FileNotFoundError:
        return None
    if holder == file or not holder.exists() or not (home / _STACK_CONFIG).exists():
        return None
    return (
        f"the local stack in {home} holds the types of {holder}, and one stack carries one "
        f"configuration. To add log files to that one, run `hourmark init FILE… --out "
        f"{holder.parent}`; to keep both apart, set HOURMARK_HOME to another folder; to start over, "
        "delete the stack and its data with `hourmark purge`"
    )
