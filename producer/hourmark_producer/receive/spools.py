"""All sources of a tailer that receive: their segments are files like all others, once they are
written.
"""

from __future__ import annotations

import dataclasses
import glob
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hourmark.clock import Clock
from hourmark.config.groups import TailedSource
from hourmark.config.groups import Tailer as TailerConfig
from hourmark.errors import ConfigError
from hourmark_producer.checkpoint.database import Checkpoint, CheckpointFailed
from hourmark_producer.conditions import ConditionLog
from hourmark_producer.counters import Counters
from hourmark_producer.files.identity import FileIdentity
from hourmark_producer.files.schedule import Schedule
from hourmark_producer.files.tracked_file import NEVER, FileProgress, TrackedFile, TrackedFiles
from hourmark_producer.receive.inputs import JOURNAL, STDIN, TLS, UDP, address_of
from hourmark_producer.receive.journal import Journal
from hourmark_producer.receive.receiver import Input, Receiver, ReceivingLosses
from hourmark_producer.receive.segments import Segments, end_of, recover
from hourmark_producer.receive.sockets import Datagrams, Streams, Tls
from hourmark_producer.receive.standard_input import StandardInput

SETTLED_WITHIN_S: Final = (
    0.2  # a source that takes longer is behind: no claim of it is begun in this look
)
STOP_WITHIN_S: Final = 5.0
_LOG = logging.getLogger(__name__)


def followed(config: TailerConfig) -> list[TailedSource]:
    """All sources, as files: those that receive have the paths of their segments."""
    return [
        source
        if source.input is None
        else source.model_copy(
            update={
                "paths": [f"{glob.escape(str(_folder(config, source).resolve()))}/*.log"],
                "read_from": "start",
            }
        )
        for source in config.sources
    ]


def recover_all(
    config: TailerConfig, checkpoint: Checkpoint, identify: Callable[[int], FileIdentity]
) -> None:
    """Put in order what a kill left, before files are followed."""
    for source in config.sources:
        if source.input is not None:
            recover(_folder(config, source), checkpoint, identify)
    received = {source.name for source in config.sources if source.input is not None}
    root = config.state_dir / "spool"
    for folder in sorted(root.iterdir()) if root.is_dir() else []:
        if folder.name not in received and any(folder.glob("*.log")):
            _LOG.warning(
                "%s holds what a source received that has no `input` any more: it is not delivered",
                folder,
            )


@dataclasses.dataclass(kw_only=True)
class Spools:
    """Receivers of one tailer. Used by the scanning thread. `failed`: what ends the tailer."""

    config: TailerConfig
    files: TrackedFiles
    checkpoint: Checkpoint
    schedule: Schedule
    counters: Counters
    throttle: ConditionLog
    clock: Clock
    failed: Callable[[Exception], None]

    def __post_init__(self) -> None:
        self.ended_s: float | None = (
            None  # monotonic: standard input was seen to be at its end, and is on disk
        )
        self.receivers = {
            source.name: self._receiver(source)
            for source in self.config.sources
            if source.input is not None
        }

    def start(self, *, to_end: bool = False) -> None:
        """Receive. `to_end`: only what has an end. ConfigError where an address cannot be had."""
        self._listen = not to_end
        try:
            for source, receiver in self.receivers.items():
                if self._receives(source):
                    receiver.start(to_end=to_end)
                else:
                    receiver.count_the_run_before()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Write what has arrived, and receive no more."""
        for receiver in self.receivers.values():
            receiver.stop(STOP_WITHIN_S)

    def behind(self) -> set[str]:
        """Sources of which something has arrived that is not on disk yet; or may have."""
        found = set()
        for source, receiver in self.receivers.items():
            if not self._receives(source):
                if not receiver.has_told():
                    found.add(source)
                continue
            draining = not self._listen and not receiver.has_ended
            if draining or not receiver.settle(SETTLED_WITHIN_S):
                found.add(source)
            elif receiver.has_ended and self.ended_s is None:
                self.ended_s = self.clock.monotonic_s()
        return found

    def unrepeatable(self, source: str) -> bool:
        """Whether its senders cannot be asked again."""
        return source in self.receivers and not self.receivers[source].input.resumes

    def release(self) -> None:
        """Remove segments that are acknowledged as a whole.

        OSError, CheckpointFailed: said, and tried again.
        """
        if not self.receivers:
            return
        for file in self.files:
            receiver = self.receivers.get(file.place.source)
            if receiver is not None and self._is_done(file, receiver.segments):
                self._remove(file, receiver.segments)

    def _is_done(self, file: TrackedFile, segments: Segments) -> bool:
        size = segments.sealed_bytes(Path(file.place.seen_at).stem)
        if (
            size is None
            or file.is_gone
            or Path(file.place.seen_at).parent != segments.folder.resolve()
        ):
            return False
        progress = file.progress  # one consistent moment
        return (
            not progress.in_flight
            and progress.position.offset >= size
            and file.is_settled
            and self.schedule.is_idle(file)
        )

    def _remove(self, file: TrackedFile, segments: Segments) -> None:
        name = Path(file.place.seen_at).stem
        try:
            if self.receivers[file.place.source].input.resumes:
                segments.keep_last(name)
            segments.set_done(name)
            end, next_generation = end_of(file)
            self.checkpoint.commit(end)
            if next_generation is None:
                self.files.retire(file)
                self.files.remove(file)
            else:
                file.close()
                file.place, file.progress = (
                    file.place._replace(missing=True),
                    FileProgress(position=next_generation),
                )
                file.observed, file.saved = NEVER, None
            segments.remove(name)
            self.throttle.resolve(f"release {file.place.source}")
        except (OSError, CheckpointFailed) as error:
            self.throttle.warn(
                f"release {file.place.source}",
                f"{segments.folder}: an acknowledged segment stays: {error}",
            )

    def _receives(self, source: str) -> bool:
        return self._listen or self.receivers[source].input.has_end

    def _receiver(self, source: TailedSource) -> Receiver:
        assert source.input is not None, "others receive nothing"
        folder = _folder(self.config, source)
        try:
            segments = Segments(folder, self.config.spool.bytes_max)
        except OSError as error:
            raise ConfigError(
                f"source {source.name}: {folder} cannot be used ({error.strerror}); "
                "tailer.state_dir is where"
            ) from error
        return Receiver(
            source=source.name,
            input=self._input(source),
            segments=segments,
            losses=ReceivingLosses(
                source.name, source.input, self.checkpoint, self.counters, self.clock
            ),
            throttle=self.throttle,
            clock=self.clock,
            failed=self.failed,
        )

    def _input(self, source: TailedSource) -> Input:
        text = source.input or ""
        if text == STDIN:
            return StandardInput(self.config.line_bytes_max)
        if text == JOURNAL:
            return Journal(source.read_from)
        address, syslog = address_of(text), self.config.syslog
        assert address is not None, "all others are addresses"
        if address.kind == UDP:
            return Datagrams((address.host, address.port), syslog.message_bytes_max)
        return Streams(
            (address.host, address.port),
            message_bytes_max=syslog.message_bytes_max,
            connections_max=syslog.connections_max,
            idle_s=syslog.idle_seconds,
            tls=Tls(syslog.tls, self.throttle) if address.kind == TLS else None,
        )


def _folder(config: TailerConfig, source: TailedSource) -> Path:
    return config.state_dir / "spool" / source.name
