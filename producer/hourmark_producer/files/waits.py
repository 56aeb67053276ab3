"""How long the tailer waits before it makes decisions about a file, and the exception `RetryLater`.

Durations are in seconds (`_S`). Other delays are numbers of scans (`_SCANS`). Multiplied by
`tailer.scan_seconds`, they are minimum delays, because scans are less frequent with many files.
Modules use the constants as `waits.NAME`, so that a test can shorten one in one place.
"""

from __future__ import annotations

from typing import Final

# A file that was found, or has grown, this recently may be a copy that is still being made.
COPYING_S: Final = 5.0
# A compressed file without an end that has not grown for this long is not being written any more.
PACKING_S: Final = 10.0
# NULs among other bytes must stay this long before they are delivered: on some file systems, and
# through a mapping, they are visible before the bytes that replace them.
NULS_S: Final = 3.0
# Pause before a flush that is due is tried again, if the latest scan saw less than the file holds.
FLUSH_AGAIN_S: Final = 0.05
# A deleted file is kept open until it has not grown for this long: its writer may still append.
DELETED_LINGER_S: Final = 5.0
# A file that no pattern matches any more is kept open this long: some writers append to the old file
# until they are notified of the rotation.
UNMATCHED_LINGER_S: Final = 600.0
# A vanished file must not be found by this many scans before it counts as missing and its unread bytes
# as lost: a listing may miss a file that is renamed meanwhile.
UNFOUND_SCANS: Final = 3
# A new compressed file is found by this many scans before it is examined: a listing may have missed
# the file that it was made of.
COMPRESSED_SCANS: Final = 3
# Bytes that are gone from a truncated file count as lost after this many scans: a listing may miss
# what is renamed meanwhile, and a file that is being compressed is found by the scan after it.
TRUNCATED_SCANS: Final = 3
# Interval between searches for missing files that have left their folder.
FORGET_EVERY_S: Final = 60.0


class RetryLater(OSError):
    """Raised when the processing of a file must be postponed. The sender retries after a pause.

    Attributes:
        is_expected: Whether the wait is part of normal operation, for example while a copy is being
            written. An expected wait is logged at level INFO, any other at WARNING.
    """

    def __init__(self, message: str, *, is_expected: bool = False) -> None:
        super().__init__(message)
        self.is_expected = is_expected
