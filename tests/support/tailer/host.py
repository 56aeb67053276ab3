"""A log host in a folder: its logs, and a tailer that runs in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hourmark.clock import SystemClock
from hourmark.config.groups import TailedSource
from hourmark.config.groups import TailerSettings as TailerConfig
from hourmark.process.file_identity import FileIdentity, identify, may_be_copied_up
from hourmark_producer.checkpoint.database import Checkpoint
from hourmark_producer.checkpoint.installation import lock_state_folder, open_installation
from hourmark_producer.report.summary import RunSummary
from hourmark_producer.tailer import Tailer
from hourmark_producer.wiring import wire_tailer


def lines(count: int, start: int = 0) -> bytes:
    """Distinct lines."""
    return b"".join(b"line %08d of a log\n" % n for n in range(start, start + count))


class Host:
    """Settings and files of one host.

    `drain` runs a tailer to the end, `running` one in the background.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self.logs = folder / "logs"
        self.logs.mkdir()
        self.app = self.logs / "app.log"
        self.state = folder / "state"
        self.settings: dict[str, Any] = {
            "state_dir": self.state,
            "service_urls": [url],
            "host_name": "host-1",
            "scan_seconds": 0.02,
            "report_seconds": 0.05,
            "backoff_max_seconds": 0.1,
            "sources": [TailedSource(name="app", paths=[f"{self.logs}/app.log*"])],
        }
        self.identify: Callable[[int], FileIdentity] = identify
        self.may_be_copied_up: Callable[[int], bool] = may_be_copied_up
        self.open_files_max = 800
        self.final_lines = False

    def configured(self, folder: Path, sources: str = "") -> Path:
        """The same settings in a file, for a tailer that is started by its command; perhaps with
        these sources.
        """
        path = folder / "hourmark.toml"
        path.write_text(f"""
[tailer]
state_dir = "{self.state}"
service_urls = ["{self.settings["service_urls"][0]}"]
scan_seconds = 0.02
report_seconds = 0.05
{sources or f'[[tailer.sources]]{chr(10)}name = "app"{chr(10)}paths = ["{self.logs}/app.log*"]'}
""")
        return path

    def copy_up(self) -> None:
        """Change all birth times, as overlayfs does when a file is copied to the upper layer."""
        born = self.identify
        self.identify = lambda descriptor: born(descriptor)._replace(
            birth_ns=born(descriptor).birth_ns + 1
        )
        self.may_be_copied_up = lambda _: True

    def append(self, content: bytes, path: Path | None = None) -> None:
        with (path or self.app).open("ab") as file:
            file.write(content)

    @contextmanager
    def tailer(self, *, reread: bool = False) -> Iterator[tuple[Tailer, Checkpoint]]:
        config = TailerConfig(**self.settings)
        with lock_state_folder(config.state_dir):
            checkpoint, host_id = open_installation(
                config.state_dir,
                reread=reread,
                sources=[s.name for s in config.sources],
                second=config.second_state_dir,
            )
            try:
                made = wire_tailer(
                    config,
                    checkpoint,
                    SystemClock(),
                    host_id=host_id,
                    host_name=config.host_name,
                    identify=self.identify,
                    may_be_copied_up=self.may_be_copied_up,
                    open_files_max=self.open_files_max,
                    final_lines=self.final_lines,
                )
                yield made, checkpoint
            finally:
                checkpoint.close()

    def drain(self, content: bytes | None = None, *, reread: bool = False) -> RunSummary:
        """Deliver all there is; `content` is appended before."""
        if content is not None:
            self.append(content)
        with self.tailer(reread=reread) as (tailer, _):
            return tailer.run(threading.Event(), drain=True)

    def once(self, content: bytes | None = None, *, give_up_s: float = 30) -> RunSummary:
        """Deliver all there is, and say no goodbye; `content` is appended before."""
        if content is not None:
            self.append(content)
        with self.tailer() as (tailer, _):
            return tailer.run(threading.Event(), once_s=give_up_s)

    @contextmanager
    def running(self, content: bytes | None = None) -> Iterator[Tailer]:
        """A tailer at work; `content` is appended before. Errors of it are raised at the end."""
        if content is not None:
            self.append(content)
        stop = threading.Event()
        failures: list[BaseException] = []

        def run(tailer: Tailer) -> None:
            try:
                tailer.run(stop)
            except BaseException as error:  # noqa: BLE001
                failures.append(error)

        with self.tailer() as (tailer, _):
            thread = threading.Thread(target=run, args=(tailer,))
            thread.start()
            try:
                yield tailer
            finally:
                stop.set()
                thread.join(30)
                assert not thread.is_alive(), "the tailer does not stop"
        if failures:
            raise failures[0]
