"""The exception hierarchy, and the exit code of a command that ends with each.

    HourmarkError                                                                        exit 1
    ├── UsageError          an argument, a setting or a declaration is invalid           exit 2
    │   ├── ConfigError
    │   └── TypeFileError
    ├── Finding             a check found a violation                                    exit 1
    └── Unavailable         a server cannot be reached, or refuses for now               exit 1

Every message states what is wrong and ends with the next step. Codes above 2 are results of single
commands: `hourmark bucket why`, `show` and `wait` end with one that states whether a bucket is closed.
"""

from __future__ import annotations


class HourmarkError(Exception):
    """Base class of all errors that are shown to users as one message, without a traceback.

    The message states what is wrong and what to do next. A command that raises the error exits with
    code 1, unless the subclass defines another exit code.
    """

    exit_code = 1


class UsageError(HourmarkError):
    """A command, its arguments or its input files are invalid.

    A retry without a change fails again. The exit code is 2.
    """

    exit_code = 2


class ConfigError(UsageError):
    """A setting of the configuration is missing or invalid.

    The message contains the name of the setting, its value and the allowed values. The exit code is
    2.
    """


class TypeFileError(UsageError):
    """The declaration of an event type or a log source is invalid.

    The message contains the file and the field. The exit code is 2.
    """


class Finding(HourmarkError):
    """A check found a violation of a guarantee, or a condition that an operator must resolve.

    The check itself was completed. The exit code is 1.
    """


class Unavailable(HourmarkError):
    """A server cannot be reached, or rejects a request temporarily.

    A retry of the same request may succeed. The exit code is 1.
    """
