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
    """Base of all errors that are shown to users as one message, without a traceback."""

    exit_code = 1


class UsageError(HourmarkError):
    """A command, its arguments or its files are invalid. Running it again unchanged fails again."""

    exit_code = 2


class ConfigError(UsageError):
    """A setting is missing or invalid; the message has its name, its value and what is allowed."""


class TypeFileError(UsageError):
    """The declaration of an event type or source is invalid; the message has file and field."""


class Finding(HourmarkError):
    """A check found a violation of a guarantee, or a condition that needs an operator."""


class Unavailable(HourmarkError):
    """A server cannot be reached or refuses for now. A retry may succeed."""
