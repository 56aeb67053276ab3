"""The exception hierarchy, and the exit code of a command that ends with each.

    HourmarkError                                                                        exit 1
    ├── UsageError          an argument, a setting or a declaration is invalid           exit 2
    │   ├── ConfigError
    │   └── TypeFileError
    ├── Finding             a check found a violation                                    exit 1
    └── Unavailable         a server cannot be reached, or refuses for now               exit 1

Every message states what is wrong and ends with the next step.
"""

from __future__ import annotations


class HourmarkError(Exception):
    """Base class of all errors that are shown to users as one message, without a traceback."""

    exit_code = 1


class UsageError(HourmarkError):
    """A command, its arguments or its files are invalid. Retrying without a change fails again."""

    exit_code = 2


class ConfigError(UsageError):
    """A setting is missing or invalid. The message contains its name, value and valid forms."""


class TypeFileError(UsageError):
    """A declaration of an event type or source is invalid. The message contains file and field."""


class Finding(HourmarkError):
    """A check found a violation of a guarantee, or a condition that an operator must resolve."""


class Unavailable(HourmarkError):
    """A server cannot be reached, or rejects a request temporarily. A retry may succeed."""
