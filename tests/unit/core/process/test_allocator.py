"""Threads of the tailer and of the delivery service share one arena; the tailer's ranges return to
the system.
"""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

MANY = """
import ctypes, sys, threading
if sys.argv[1] == "one":
    from hourmark.process.allocator import use_one_arena
    assert use_one_arena()
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
ready = threading.Barrier(5)
def allocate():
    ready.wait()
    library.malloc(1000)
    ready.wait()
threads = [threading.Thread(target=allocate) for _ in range(4)]
for thread in threads: thread.start()
ready.wait(); ready.wait()
library.fdopen.restype = ctypes.c_void_p
library.malloc_info(0, ctypes.c_void_p(library.fdopen(1, b"w")))
library.fflush(None)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no arenas")
def test_threads_share_an_arena() -> None:
    def arenas(asked: str) -> int:
        done = subprocess.run(
            [sys.executable, "-c", MANY, asked],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return done.stdout.count("<heap ")

    assert arenas("many") > 1, "else this shows nothing"
    assert arenas("one") == 1


LARGE = """
import sys
from pathlib import Path
from hourmark.process.allocator import release_large_blocks
if sys.argv[1] == "given":
    assert release_large_blocks()
def resident_mib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20
bytes(bytearray(3 << 20))  # glibc learns the size of large ones
large, small = [], []
for number in range(40):
    large.append(b"x" * ((3 << 20) - number))
    small.append(b"x" * (1000 + number))
before = resident_mib()
del large
print(before - resident_mib())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="its thresholds are glibc's")
def test_large_blocks_are_given_back() -> None:
    def given_back_mib(asked: str) -> float:
        done = subprocess.run(
            [sys.executable, "-c", LARGE, asked],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return float(done.stdout)

    assert given_back_mib("kept") < 60, "else this shows nothing"
    assert given_back_mib("given") > 110
