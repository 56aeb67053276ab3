"""A tailer that measures its CPU time by kind of work: `python -m bench.tailer_parts RESULT tail
…`.

Seconds are written to the file RESULT. Each call of a part's functions is timed with the CPU clock
of its thread, without nested parts. Counting costs some microseconds per range, so `bench.tailer`
measures the total without it and uses these values for the division only.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import hourmark_producer.checkpoint.database
import hourmark_producer.checkpoint.generations
import hourmark_producer.checkpoint.spooled_ranges
import hourmark_producer.cut.range_cutter
import hourmark_producer.files.examination
import hourmark_producer.send.client
import hourmark_producer.send.connections
import hourmark_producer.send.file_examiner
import hourmark_producer.send.file_shipper
from hourmark_producer.send.range_spooler import RangeCompressor, RangeCompressorPool

REST: Final = (
    "cutting"  # what a step of a file takes beside all parts: its rules, its objects, its threads
)


class Parts:
    """CPU seconds by kind of work."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._local = threading.local()

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function` with its CPU time added to `part`."""

        @functools.wraps(function)
        def counted(*args: Any, **named: Any) -> Any:
            outer, self._local.within = getattr(self._local, "within", 0.0), 0.0
            began = time.thread_time()
            try:
                return function(*args, **named)
            finally:
                took = time.thread_time() - began
                with self._lock:
                    self.seconds[part] += took - self._local.within
                self._local.within = outer + took

        return counted

    def put(self, part: str, owner: Any, *names: str) -> None:
        """Measure functions of a module or methods of a class as `part`."""
        for name in names:
            setattr(owner, name, self.timed(part, getattr(owner, name)))


class _Compressor:
    def __init__(self, parts: Parts, real: Any) -> None:
        self.compress = parts.timed("compressing", real.compress)


def count(parts: Parts) -> None:
    """Measure all functions that process a range."""
    parts.put(REST, hourmark_producer.send.file_shipper.FileShipper, "step")
    parts.put("reading", hourmark_producer.send.file_examiner, "examine")
    parts.put("reading", hourmark_producer.cut.range_cutter, "is_anchored", "read_at", "read_into")
    parts.put("fsync of bodies", os, "fdatasync")  # SQLite does its own
    parts.put("spool: bodies", hourmark_producer.checkpoint.spooled_ranges.BodyFile, "put", "get")
    parts.put(
        "spool: SQLite, with its fsync", hourmark_producer.checkpoint.database.Checkpoint, "commit"
    )
    parts.put("hashing", hourmark_producer.checkpoint.generations.GenerationStart, "of")
    parts.put("HTTP: sending", hourmark_producer.send.connections, "_send")
    parts.put("HTTP: all else", hourmark_producer.send.client.DeliveryServiceClient, "send_range")
    parts.put("HTTP: all else", hourmark_producer.send.client.SentRange, "result")
    made = RangeCompressorPool._new

    def new(self: Any) -> Any:
        press = made(self)
        return RangeCompressor(_Compressor(parts, press.zstd), press.buffer)  # type: ignore[arg-type]

    RangeCompressorPool._new = new  # type: ignore[method-assign]


def main() -> None:
    """Run `RESULT tail …` like `hourmark tail …`."""
    from hourmark.cli import main as hourmark

    result, parts = Path(sys.argv.pop(1)), Parts()
    count(parts)
    try:
        hourmark()
    finally:
        result.write_text(json.dumps(dict(parts.seconds) | {"all": sum(os.times()[:2])}))


if __name__ == "__main__":
    main()
