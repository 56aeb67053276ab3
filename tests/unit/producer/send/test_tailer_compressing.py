"""Few threads have a range's lines in memory at a time; one that hangs stops no others."""

from __future__ import annotations

import contextlib
import threading

import zstandard

from hourmark_producer.send.range_spooler import COMPRESSORS, RangeCompressorPool


def test_no_more_have_one_at_a_time_than_there_are() -> None:
    presses, taken, most, lock = RangeCompressorPool(10, patience_s=60.0), 0, 0, threading.Lock()
    all_begun = threading.Barrier(8)

    def work() -> None:
        nonlocal taken, most
        all_begun.wait()
        for _ in range(50):
            with presses.acquire() as press:
                with lock:
                    taken += 1
                    most = max(most, taken)
                assert zstandard.decompress(press.zstd.compress(b"a line\n")) == b"a line\n"
                with lock:
                    taken -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert 1 <= most <= COMPRESSORS


def test_those_that_hang_stop_no_others() -> None:
    presses = RangeCompressorPool(10, 1, patience_s=0.01)
    with presses.acquire() as hanging:
        with presses.acquire() as other:
            assert other is not hanging
        presses._patience_s = 60.0
        with presses.acquire() as again:
            assert again is other, "it is waited for once"
    with presses.acquire() as again, contextlib.ExitStack() as more:
        presses._patience_s = 0.01
        assert again is other
        assert more.enter_context(presses.acquire()) is not hanging, (
            "no more are kept than there were"
        )


def test_an_error_gives_it_back() -> None:
    presses = RangeCompressorPool(10, 1, patience_s=60.0)
    for _ in range(2):
        try:
            with presses.acquire():
                raise OSError
        except OSError:
            pass
