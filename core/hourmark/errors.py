"""The tree of errors, and the exit code each ends a command with.

    HourmarkError
    ├── UsageError          wrong use: a setting, an argument, a type file               exit 2
    │   ├── ConfigError
    │   └── TypeFileError
    ├── Finding             a check found something that must not be                     exit 1
    └── Unavailable         a server cannot be reached or refuses for now                exit 1

Every message names what was wrong and ends with the next step to take.
"""

from __future__ import annotations


class HourmarkError(Exception):
    """Base of all errors that a user is shown as one message, without a traceback."""

    exit_code = 1


class UsageError(HourmarkError):
    """The command, its arguments or its files are wrong; running it again unchanged cannot help."""

    exit_code = 2


class ConfigError(UsageError):
    """A setting is missing or wrong; the message names it, its value and what is allowed."""


class TypeFileError(UsageError):
    """An event type's or source's declaration is wrong; the message names file and field."""


class Finding(HourmarkError):
    """A check has found something that breaks a promise or needs an operator."""


class Unavailable(HourmarkError):
    """A server cannot be reached or refuses for now; trying again may help."""
