"""Threads of the tailer and of the delivery service share one arena."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

MANY = """
import ctypes, sys, threading
if sys.argv[1] == "one":
    from hourmark.allocator import use_one_arena
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
        done = subprocess.run([sys.executable, "-c", MANY, asked], capture_output=True, text=True, check=True, timeout=60)
        return done.stdout.count("<heap ")

    assert arenas("many") > 1, "else this shows nothing"
    assert arenas("one") == 1
