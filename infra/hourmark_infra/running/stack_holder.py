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


def record_applied_configuration(home: Path, file: Path) -> None:
    """Record that the event types of a configuration were applied to the local stack.

    A stack supports the types of one configuration only. `describe_conflict` later uses the record
    to detect that another configuration is about to be applied.

    Args:
        home: The `HOURMARK_HOME` folder of the stack.
        file: Absolute path of the configuration file.
    """
    write_durably(home / _FILE, os.fsencode(file))


def describe_conflict(home: Path, file: Path) -> str | None:
    """Return an error message if the local stack already uses another configuration.

    A stack supports the event types of one configuration only, so no other configuration can be
    applied to it.

    Args:
        home: The `HOURMARK_HOME` folder of the stack.
        file: Absolute path of the configuration file to be applied.

    Returns:
        A message that names the other configuration and the next step. None if there is no stack,
        no other configuration was applied to it, or the other configuration file no longer exists.
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
