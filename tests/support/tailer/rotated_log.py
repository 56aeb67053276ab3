"""A log that is written without a pause and rotated by the real logrotate, and what stood in it."""

from __future__ import annotations

import bz2
import gzip
import os
import random
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Final

from tests.support.debian_programs import Program
from tests.support.waiting import wait_for

CONFIGURATIONS: Final = {
    "create": "create",
    "compress": "create\n    compress",
    "delaycompress": "create\n    compress\n    delaycompress",
    "dateext": "create\n    dateext\n    dateformat -%Y%m%d-%s",
    "copytruncate": "copytruncate",
}
_BYTES_A_SECOND: Final = 1_000_000


class RotatedLog(threading.Thread):
    """Writes numbered lines to `app.log`.

    `rotate` runs logrotate as a daemon's own settings would have it run.
    """

    def __init__(self, folder: Path, logrotate: Program, directives: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.logs = folder / "logs"
        self.logs.mkdir(mode=0o755)
        self.path = self.logs / "app.log"
        self.written: list[bytes] = []
        self._rng = random.Random(seed)
        self._logrotate = logrotate
        self._folder = folder
        self._reopen = folder / "reopen"
        self._ending = threading.Event()
        self._rotated_s = 0
        told = f"touch {self._reopen}; while [ -e {self._reopen} ]; do sleep 0.01; done"
        postrotate = (
            f"    postrotate\n        {told}\n    endscript\n"
            if "copytruncate" not in directives
            else ""
        )
        self._settings = folder / "logrotate.conf"
        self._settings.write_text(
            f"{self.path} {{\n    rotate 10000\n    {directives}\n{postrotate}}}\n"
        )
        self._settings.chmod(0o644)
        self.start()

    def run(self) -> None:
        """As a daemon writes: appending, a line or some at once, and to a new file once it is told
        of the rotation.
        """
        number, file = 0, self._opened()
        while not self._ending.is_set():
            if self._reopen.exists():
                os.close(file)
                file = self._opened()
                self._reopen.unlink()
            lines = []
            for _ in range(self._rng.randrange(1, 40)):
                lines.append(
                    b"%d %s\n"
                    % (number, self._rng.randbytes(self._rng.randrange(10, 150)).hex().encode())
                )
                number += 1
            text = b"".join(lines)
            assert os.write(file, text) == len(text)
            self.written += lines
            self._ending.wait(len(text) / _BYTES_A_SECOND)
        os.close(file)

    def rotate(self) -> None:
        """Once, whatever the log's age and size; not twice in a second, which dateext has in names
        here.
        """
        wait_for(
            lambda: int(time.time() - 0.05) > self._rotated_s, "the next second"
        )  # its clock is some ms behind
        command = [
            str(self._logrotate.path),
            "-f",
            "-s",
            str(self._folder / "logrotate.state"),
            str(self._settings),
        ]
        done = subprocess.run(
            command,
            env=self._logrotate.environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        self._rotated_s = int(time.time())
        assert (done.returncode, done.stderr) == (0, ""), done.stderr

    def end(self) -> None:
        """Write no more."""
        self._ending.set()
        self.join(30)
        assert not self.is_alive()

    def standing(self) -> Counter[bytes]:
        """The lines in the log and its rotated files, inflated."""
        found: Counter[bytes] = Counter()
        for path in self.logs.iterdir():
            content = {".gz": gzip.decompress, ".bz2": bz2.decompress}.get(path.suffix, bytes)(
                path.read_bytes()
            )
            found.update(content.splitlines(keepends=True))
        return found

    def _opened(self) -> int:
        return os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
