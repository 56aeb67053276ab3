"""Chooses the bucket length of a new configuration by the age of the existing log lines.

The length of a storage root's buckets is fixed once types were applied. Minutes let a user see the
buckets of recent lines close within a few minutes. Hours keep the number of buckets small.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from hourmark.errors import UsageError
from hourmark_declare.line_trial import to_unix_ms

MINUTE_S: Final = 60
HOUR_S: Final = 3600
RECENT_MS: Final = 2 * 3_600_000


class BucketLength(NamedTuple):
    """A bucket length, and the reason for choosing it.

    A bucket contains the events of one type in one time interval. Its length is the length of the
    interval.

    Attributes:
        seconds: Length of a bucket in seconds.
        reason: A clause that explains the choice, for example `because no line is under two hours
            old`.
    """

    seconds: int
    reason: str


def choose_bucket_length(newest: Mapping[Path, str | None], now_ms: int) -> BucketLength:
    """Choose the bucket length for log files, based on the age of their newest lines.

    Args:
        newest: Maps each log file to the time of its newest line in ISO 8601; None if its lines
            contain no time. The event time is then the time at which a line is read.
        now_ms: Current time in Unix milliseconds.

    Returns:
        One minute if any of these lines is less than two hours old or contains no time; otherwise
        one hour.
    """
    for path, time in newest.items():
        if time is None:
            return BucketLength(MINUTE_S, f"because the lines of {path} contain no time")
        if now_ms - to_unix_ms(time) < RECENT_MS:
            return BucketLength(MINUTE_S, f"because {path} has a line that is under two hours old")
    return BucketLength(HOUR_S, "because no line is under two hours old")


def read_bucket_length(settings: Path) -> BucketLength | None:
    """Return the bucket length that an existing configuration file sets.

    Args:
        settings: Path of the configuration file.

    Returns:
        The bucket length; None if the file does not exist or does not set `parsing.bucket_seconds`.

    Raises:
        UsageError: The file cannot be read or is not valid TOML.
    """
    try:
        length_s = tomllib.loads(settings.read_text()).get("parsing", {}).get("bucket_seconds")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot read {settings}: {error}; `hourmark up` writes it again, or set the bucket "
            "length with --bucket-seconds"
        ) from error
    return None if length_s is None else BucketLength(int(length_s), f"as in {settings}")
