"""All receiving sources of a tailer; their segments are tailed like any other files."""

from __future__ import annotations

import dataclasses
import glob
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hourmark.clock import Clock
from hourmark.config.groups import TailedSource
from hourmark.config.groups import TailerSettings as TailerConfig
from hourmark.errors import ConfigError
from hourmark.process.file_identity import FileIdentity
from hourmark_producer.checkpoint.database import Checkpoint, CheckpointFailed
from hourmark_producer.conditions import ConditionLog
from hourmark_producer.counters import Counters
from hourmark_producer.files.schedule import Schedule
from hourmark_producer.files.tracked_file import NEVER, FileProgress, TrackedFile, TrackedFiles
from hourmark_producer.receive.inputs import JOURNAL, STDIN, TLS, UDP, parse_listen_address
from hourmark_producer.receive.journal import JournalInput
from hourmark_producer.receive.receiver import ReceivingInput, ReceivingLosses, SourceReceiver
from hourmark_producer.receive.segments import (
    SegmentStore,
    recover_segments,
    segment_removal_changes,
)
from hourmark_producer.receive.sockets import ListenerTls, SyslogDatagramInput, SyslogStreamInput
from hourmark_producer.receive.standard_input import StandardInput

SETTLED_WITHIN_S: Final = (
    0.2  # a source that takes longer is unsettled: this scan starts no claim for it
)
STOP_WITHIN_S: Final = 5.0
_LOG = logging.getLogger(__name__)


def sources_as_files(config: TailerConfig) -> list[TailedSource]:
    """Return the settings of all sources, with receiving sources converted to file sources.

    A receiving source (syslog, journal, standard input) first writes its lines to segment files. In
    the result, its setting `paths` matches these files, and `read_from` is `start`. Other sources
    are unchanged.

    Args:
        config: Settings of the tailer.

    Returns:
        One entry per configured source, in the same order.
    """
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


def recover_spools(
    config: TailerConfig, checkpoint: Checkpoint, identify: Callable[[int], FileIdentity]
) -> None:
    """Repair the segment files of all receiving sources after the tailer was killed.

    A segment file contains the lines that a source such as syslog received. Call this function
    before any file is read. Segments of a source that no longer has an `input` are not delivered; a
    warning is logged.

    Args:
        config: Settings of the tailer.
        checkpoint: Open checkpoint.
        identify: Function that returns the identity of an open file.

    Raises:
        OSError: A segment cannot be read or repaired.
        CheckpointFailed: The checkpoint cannot be written.
    """
    for source in config.sources:
        if source.input is not None:
            recover_segments(_folder(config, source), checkpoint, identify)
    received = {source.name for source in config.sources if source.input is not None}
    root = config.state_dir / "spool"
    for folder in sorted(root.iterdir()) if root.is_dir() else []:
        if folder.name not in received and any(folder.glob("*.log")):
            _LOG.warning(
                "%s contains received data of a source that no longer has an `input`; the data "
                "is not delivered",
                folder,
            )


@dataclasses.dataclass(kw_only=True)
class ReceiverGroup:
    """The receiver threads of all sources such as syslog, one for each source.

    The scanning thread calls its methods. Sources that read log files have no receiver.

    Attributes:
        config: Settings of the tailer.
        files: All tracked files, including the files to which receivers append.
        checkpoint: The tailer's open database.
        schedule: Queue of files that have unread or unsent bytes.
        counters: Counters of this run.
        throttle: Logs each lasting problem once when it begins and once when it ends.
        clock: Clock of this host.
        on_error: Called with an exception that must end the tailer.
        receivers: Receivers by source name.
        ended_s: Time at which standard input was completely on disk, in monotonic seconds; None
            until then.
    """

    config: TailerConfig
    files: TrackedFiles
    checkpoint: Checkpoint
    schedule: Schedule
    counters: Counters
    throttle: ConditionLog
    clock: Clock
    on_error: Callable[[Exception], None]

    def __post_init__(self) -> None:
        self.ended_s: float | None = None  # monotonic: when all of standard input was on disk
        self.receivers = {
            source.name: self._receiver(source)
            for source in self.config.sources
            if source.input is not None
        }

    def start(self, *, to_end: bool = False) -> None:
        """Open the inputs of all receiving sources and start one thread for each.

        Args:
            to_end: Whether to receive only from inputs that have an end, such as standard input,
                until that end. Set it for a drain, which delivers everything and then exits.

        Raises:
            ConfigError: An input is not available, for example because its address is in use.
        """
        self._listen = not to_end
        try:
            for source, receiver in self.receivers.items():
                if self._receives(source):
                    receiver.start(to_end=to_end)
                else:
                    receiver.record_previous_run_losses()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Write all received data to disk and end the receiver threads.

        Each receiver has a limited time to stop (`STOP_WITHIN_S`).
        """
        for receiver in self.receivers.values():
            receiver.stop(STOP_WITHIN_S)

    def sources_with_unsynced_data(self) -> set[str]:
        """Return the sources that may have received data that is not on disk yet.

        The tailer must not report such a source as caught up after the current scan.

        Returns:
            Names of the sources; empty if all received data is on disk.
        """
        found = set()
        for source, receiver in self.receivers.items():
            if not self._receives(source):
                if not receiver.commit_losses():
                    found.add(source)
                continue
            draining = not self._listen and not receiver.has_ended
            if draining or not receiver.wait_until_written(SETTLED_WITHIN_S):
                found.add(source)
            elif receiver.has_ended and self.ended_s is None:
                self.ended_s = self.clock.monotonic_s()
        return found

    def is_unrepeatable(self, source: str) -> bool:
        """Return whether the data of a source can be received only once.

        Args:
            source: Name of the source.

        Returns:
            True for an input such as syslog. False for log files, and for an input that can be read
            again from the last line on disk, such as the journal.
        """
        return source in self.receivers and not self.receivers[source].input.is_resumable

    def remove_acknowledged(self) -> None:
        """Delete all segment files that are completely acknowledged.

        A segment file stores received lines until they are delivered. Current segments, to which
        lines are still appended, are kept. If a file cannot be deleted, the error is logged and the
        next call tries again.
        """
        if not self.receivers:
            return
        for file in self.files:
            receiver = self.receivers.get(file.place.source)
            if receiver is not None and self._is_removable(file, receiver.segments):
                self._remove(file, receiver.segments)

    def _is_removable(self, file: TrackedFile, segments: SegmentStore) -> bool:
        size = segments.complete_size(Path(file.place.seen_at).stem)
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

    def _remove(self, file: TrackedFile, segments: SegmentStore) -> None:
        name = Path(file.place.seen_at).stem
        try:
            if self.receivers[file.place.source].input.is_resumable:
                segments.save_last_line(name)
            segments.mark_done(name)
            end, next_generation = segment_removal_changes(file)
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
                f"{segments.folder}: an acknowledged segment cannot be removed: {error}",
            )

    def _receives(self, source: str) -> bool:
        return self._listen or self.receivers[source].input.has_end

    def _receiver(self, source: TailedSource) -> SourceReceiver:
        assert source.input is not None, "others receive nothing"
        folder = _folder(self.config, source)
        try:
            segments = SegmentStore(folder, self.config.spool.bytes_max)
        except OSError as error:
            raise ConfigError(
                f"source {source.name}: {folder} cannot be used ({error.strerror}); it must be a "
                "folder in tailer.state_dir"
            ) from error
        return SourceReceiver(
            source=source.name,
            input=self._input(source),
            segments=segments,
            losses=ReceivingLosses(
                source.name, source.input, self.checkpoint, self.counters, self.clock
            ),
            throttle=self.throttle,
            clock=self.clock,
            on_error=self.on_error,
        )

    def _input(self, source: TailedSource) -> ReceivingInput:
        text = source.input or ""
        if text == STDIN:
            return StandardInput(self.config.line_bytes_max)
        if text == JOURNAL:
            return JournalInput(source.read_from)
        address, syslog = parse_listen_address(text), self.config.syslog
        assert address is not None, "all others are addresses"
        if address.kind == UDP:
            return SyslogDatagramInput((address.host, address.port), syslog.message_bytes_max)
        return SyslogStreamInput(
            (address.host, address.port),
            message_bytes_max=syslog.message_bytes_max,
            connections_max=syslog.connections_max,
            idle_s=syslog.idle_seconds,
            tls=ListenerTls(syslog.tls, self.throttle) if address.kind == TLS else None,
        )


def _folder(config: TailerConfig, source: TailedSource) -> Path:
    return config.state_dir / "spool" / source.name
