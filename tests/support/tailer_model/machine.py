"""What tests set of the machine as one tailer sees it: its wall clock, and how many datagrams its
kernel keeps.
"""

from __future__ import annotations

import functools
import mmap
import os
import struct
from pathlib import Path
from typing import Final

# a file: so many milliseconds the tailer's wall clock is ahead of the machine's
CLOCK: Final = "HOURMARK_TEST_CLOCK"
KERNEL_BYTES: Final = (
    1 << 15
)  # of datagrams, twice of which the kernel keeps: as where net.core.rmem_max is small
_AHEAD_MS: Final = struct.Struct("=q")


def set_clock(path: Path, ahead_ms: int) -> None:
    """For tailers that run and for those that begin."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.pwrite(descriptor, _AHEAD_MS.pack(ahead_ms), 0)
    finally:
        os.close(descriptor)


def install() -> None:
    """In this process, from now on; the monotonic clock stays as it is."""
    from hourmark.clock import SystemClock
    from hourmark_producer.receive import sockets, spools

    small = functools.partial(sockets.SyslogDatagramInput, kernel_bytes=KERNEL_BYTES)
    assert "SyslogDatagramInput" in vars(spools), "else bursts would lose nothing"
    vars(spools)["SyslogDatagramInput"] = small
    with Path(os.environ[CLOCK]).open("rb") as file:
        ahead = mmap.mmap(file.fileno(), _AHEAD_MS.size, access=mmap.ACCESS_READ)
    real = SystemClock.now_ms

    def now_ms(clock: SystemClock) -> int:
        (ahead_ms,) = _AHEAD_MS.unpack(ahead)
        return real(clock) + int(ahead_ms)

    SystemClock.now_ms = now_ms  # type: ignore[assignment, method-assign]
