"""The thread that receives one source, and the losses of that source until they are recorded.

The thread works in rounds: it reads everything that is ready once and appends it to the segments
with one write and one sync. While the spool is full, streams are not read, so their senders wait;
datagrams are read, counted as lost and discarded. `SourceReceiver.settle` waits for a round that
began after the call and left nothing unread; only then may the source be called caught up.

Losses are collected by `ReceivingLosses` and committed to the checkpoint before any claim is made
that covers them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import selectors
import threading
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from hourmark.clock import Clock
from hourmark_producer.checkpoint import database as changes
from hourmark_producer.checkpoint.database import Checkpoint, CheckpointFailed
from hourmark_producer.conditions import ConditionLog
from hourmark_producer.counters import Counters, Loss
from hourmark_producer.receive.segments import SegmentNotSynced, SegmentStore

LOSS_COMMIT_INTERVAL_S: Final = 1.0  # at most one recorded occasion per second
_LOG = logging.getLogger(__name__)


class ReceivingLosses:
    """Collects the losses of one receiving source, and records them in the tailer's database.

    A receiving source reads syslog messages, the journal or standard input. A loss is data that was
    sent to the source but could not be stored, such as an oversized message. `add` collects losses
    in memory, and `commit` records them. Not thread-safe.

    Args:
        source: Name of the source.
        address: The source's setting `input`, such as `syslog+udp://:514`. It is recorded in the
            field `path` of each loss.
        checkpoint: The tailer's database, in which losses are recorded.
        counters: Counters of the tailer process, to which recorded losses are added.
        clock: Clock of this host.
    """

    def __init__(
        self, source: str, address: str, checkpoint: Checkpoint, counters: Counters, clock: Clock
    ) -> None:
        self._source, self._address = source, address
        self._checkpoint, self._counters, self._clock = checkpoint, counters, clock
        self._pending: dict[
            str, tuple[int, int]
        ] = {}  # by description: lost bytes, and occasions of unknown loss
        self._committed_s = float("-inf")

    def add(self, what: str, *, lost_bytes: int = 0, unknown: int = 0) -> None:
        """Add a loss, which the next `commit` records.

        Args:
            what: Description of the loss. Losses with the same description are combined.
            lost_bytes: Number of bytes that are known to be lost.
            unknown: Number of occasions on which an unknown number of bytes may have been lost.
        """
        before, occasions = self._pending.get(what, (0, 0))
        self._pending[what] = (before + lost_bytes, occasions + unknown)

    def commit(self, *, at_once: bool = False) -> bool:
        """Record the collected losses in the checkpoint, then count and log them.

        Args:
            at_once: Whether to record the losses even if less than `LOSS_COMMIT_INTERVAL_S` seconds
                have passed since the last commit.

        Returns:
            True if no losses remain to be recorded. False if it is too early, or if the checkpoint
            cannot be written. The losses are then kept for the next call.
        """
        now_s = self._clock.monotonic_s()
        if not self._pending:
            return True
        if not at_once and now_s - self._committed_s < LOSS_COMMIT_INTERVAL_S:
            return False
        losses = [
            Loss(
                source=self._source,
                path=self._address,
                at_ms=self._clock.now_ms(),
                bytes=count,
                unknown=unknown,
                what=what,
            )
            for what, (count, unknown) in self._pending.items()
        ]
        try:
            self._checkpoint.commit(
                [change for loss in losses for change in changes.add_loss(loss)]
            )
        except CheckpointFailed:
            return False
        self._pending, self._committed_s = {}, now_s
        for loss in losses:
            self._counters.add_loss(loss)
            _LOG.warning(
                "source %s, %s: %s; %d bytes are known to be lost%s",
                loss.source,
                loss.path,
                loss.what,
                loss.bytes,
                f", plus an unknown amount on {loss.unknown} occasions" if loss.unknown else "",
            )
        return True


READ_BYTES: Final = 1 << 16  # per descriptor and round
_WAIT_S: Final = 0.5  # maximum time between two ticks
_LAST_ROUNDS: Final = 64  # rounds before a stop
# while a scan waits for an input that is not caught up, as without descriptors: no busy loop
_UNSETTLED_WAIT_S: Final = 0.01
_HELD_WAIT_S: Final = 0.05  # between checks for free space


class ReadCallback(NamedTuple):
    """The function that the receiver calls when a file descriptor is readable.

    Attributes:
        read: Function that reads from the descriptor. Returns True if nothing is left to read.
        while_paused: Whether to call `read` even while the receiver is paused. It is paused when
            received data cannot be written, or has reached its size limit on disk.
    """

    read: Callable[[], bool]
    while_paused: bool = False


class ReceivingInput(Protocol):
    """Interface of an input from which a source receives data, such as a socket.

    The receiver thread calls all methods except `open`.

    Attributes:
        loses_while_stopped: Whether data that is sent while no receiver runs is lost.
        has_end: Whether the input has an end, like standard input. A drain, which delivers
            everything and then exits, reads such an input to its end.
        is_resumable: Whether reading can resume after the last received line, as for the journal.
            No data is then lost while no receiver runs.
    """

    loses_while_stopped: bool  # data sent while no receiver runs is lost
    has_end: bool  # a drain reads it to its end
    is_resumable: bool  # it can be read again from the last line on

    @property
    def is_caught_up(self) -> bool:
        """Return whether the input can read all data that has arrived.

        False, for example, while connections cannot be accepted. The source is then not reported as
        caught up.
        """
        ...

    def open(self, receiver: SourceReceiver) -> None:
        """Open the input and register its file descriptors with `receiver.watch`.

        Args:
            receiver: Receives the lines and losses of the input.

        Raises:
            ConfigError: An address or program is not available.
        """
        ...

    def tick(self, now_s: float) -> None:
        """Perform periodic work, such as closing idle connections.

        Args:
            now_s: Current time in monotonic seconds.
        """
        ...

    def close(self) -> None:
        """Unregister the file descriptors of the input and release all of its resources."""
        ...


@dataclasses.dataclass(eq=False, kw_only=True)
class SourceReceiver:
    """The thread that receives the data of one source and appends its lines to files on disk.

    The input calls `watch`, `unwatch`, `receive` and `finish`. The scanning thread calls the other
    methods.

    Attributes:
        source: Name of the source.
        input: The input from which the data comes, such as a socket.
        segments: The segment files.
        losses: Losses of the source that are not recorded yet.
        throttle: Logs each lasting problem, such as a full disk, once when it begins and once when
            it ends.
        clock: Clock of this host.
        on_error: Called with an exception that must end the tailer.
        is_paused: Whether no streams are read, because the segment files have reached their size
            limit or cannot be written.
        has_ended: Whether no more data will be received.
        to_end: Whether the thread ends as soon as no more data is available.
    """

    source: str
    input: ReceivingInput
    segments: SegmentStore
    losses: ReceivingLosses
    throttle: ConditionLog
    clock: Clock
    on_error: Callable[[Exception], None]

    def __post_init__(self) -> None:
        self.is_paused = False
        self.has_ended = False  # no more data will be received
        self.to_end = False  # end when nothing more is available
        self._lines: list[bytes] = []
        self._selector = (
            selectors.PollSelector()
        )  # poll supports regular files, which standard input may be
        self._paused: list[selectors.SelectorKey] = []
        self._wake_r, self._wake_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._changed = threading.Condition()
        self._wanted = self._settled = 0
        self._stopping = self._ending = False
        self._thread = threading.Thread(target=self._run, name=f"spool {self.source}", daemon=True)

    def start(self, *, to_end: bool = False) -> None:
        """Open the input and start the thread.

        Args:
            to_end: Whether the thread ends as soon as no more data is available.

        Raises:
            ConfigError: The input is not available.
        """
        self.to_end = to_end
        self._selector.register(
            self._wake_r, selectors.EVENT_READ, ReadCallback(self._clear_wakeup, while_paused=True)
        )
        self.record_previous_run_losses()
        was_open = self.segments.was_left_open()
        self.segments.mark_open()  # before anything can arrive
        try:
            self.input.open(self)
        except BaseException:
            if not was_open:
                self.segments.clear_open_mark()
            raise
        self._thread.start()

    def record_previous_run_losses(self) -> None:
        """Add a loss of unknown size if data may have been lost since the previous run.

        That is the case if the previous run was killed, or if the input loses data while no
        receiver runs. For an input that can be read again, nothing is added.
        """
        if self.segments.was_left_open() and not self.input.is_resumable:
            why = (
                "no tailer listened since the previous run"
                if self.input.loses_while_stopped
                else "the previous run was killed: data that it had received and not yet written"
            )
            self.losses.add(why, unknown=1)

    def commit_losses(self) -> bool:
        """Record the collected losses of the source in the checkpoint.

        Call this method for a source that does not receive in this run, before the source is
        reported as caught up. Data may have been lost at the end of the previous run.

        Returns:
            Whether the losses are recorded. False if the checkpoint cannot be written.
        """
        if recorded := self.losses.commit(at_once=True):
            self._unmark()
        return recorded

    def stop(self, within_s: float) -> None:
        """Write all data that has arrived to disk, and end the thread.

        Args:
            within_s: Maximum time to wait for the thread, in seconds.
        """
        self._stopping = True
        self._wake()
        if self._thread.ident is not None:
            self._thread.join(within_s)

    def wait_until_written(self, within_s: float) -> bool:
        """Wait until all data that arrived before this call is on disk.

        Args:
            within_s: Maximum time to wait, in seconds.

        Returns:
            True if all of that data is on disk. False if the time limit expired, or if the receiver
            is paused because its spool is full or cannot be written.
        """
        with self._changed:
            self._wanted += 1
            goal = self._wanted
            self._wake()
            self._changed.wait_for(
                lambda: self._settled >= goal or self.has_ended or self.is_paused, within_s
            )
            return self._settled >= goal or self.has_ended

    def watch(self, descriptor: int, callback: ReadCallback) -> None:
        """Register a callback that reads from a file descriptor whenever it is readable.

        Args:
            descriptor: The file descriptor.
            callback: The callback. While the receiver is paused, it is called only if
                `while_paused` is True.
        """
        if self.is_paused and not callback.while_paused:
            self._paused.append(
                selectors.SelectorKey(descriptor, descriptor, selectors.EVENT_READ, callback)
            )
        else:
            self._selector.register(descriptor, selectors.EVENT_READ, callback)

    def unwatch(self, descriptor: int) -> None:
        """Unregister a file descriptor. Call this method before you close the descriptor.

        Args:
            descriptor: The file descriptor. If it is not registered, nothing happens.
        """
        self._paused = [key for key in self._paused if key.fd != descriptor]
        with contextlib.suppress(KeyError):
            self._selector.unregister(descriptor)

    def receive(self, line: bytes) -> None:
        """Buffer received lines until the receiver writes them to the current segment file.

        The receiver writes all buffered lines after it has called each readable input once.

        Args:
            line: Zero or more lines, each with its newline.
        """
        self._lines.append(line)

    def finish(self) -> None:
        """Report that the input has ended. The receiver thread ends after all lines are on disk."""
        self._ending = True

    def _run(self) -> None:
        try:
            while not self._stopping and (not self._ending or self.segments.unwritten_bytes):
                self._round(_HELD_WAIT_S if self.is_paused else _WAIT_S)
            if not self._drain() and not self.input.is_resumable:
                self.losses.add("stopped before all data that had arrived was read", unknown=1)
            self.input.close()
            self._write()
            unwritten = self.segments.unwritten_bytes
            if unwritten and not self.input.is_resumable:
                self.losses.add(
                    "stopped before received data could be written", lost_bytes=unwritten
                )
            recorded = self.losses.commit(at_once=True)
            self.segments.close()
            if recorded:
                self._unmark()
        except Exception as error:  # noqa: BLE001  # handed to the main thread, which ends with it
            self.on_error(error)
        finally:
            with self._changed:
                self.has_ended = True
                self._changed.notify_all()

    def _unmark(self) -> None:
        if not self.input.loses_while_stopped:
            self.segments.clear_open_mark()

    def _drain(self) -> bool:
        return any(self._round(0) for _ in range(_LAST_ROUNDS)) and not self.is_paused

    def _round(self, wait_s: float) -> bool:
        goal = self._wanted
        drained = self.input.is_caught_up
        if goal > self._settled and not self.is_paused:
            wait_s = 0 if drained else min(wait_s, _UNSETTLED_WAIT_S)
        for key, _ in self._selector.select(wait_s):
            drained &= key.data.read()
        self._write()
        self.input.tick(self.clock.monotonic_s())
        recorded = self.losses.commit(at_once=goal > self._settled)
        if drained and recorded and not self.is_paused and goal > self._settled:
            with self._changed:
                self._settled = goal
                self._changed.notify_all()
        return drained

    def _write(self) -> None:
        if self.input.is_resumable and not self.losses.commit(
            at_once=True
        ):  # after a kill, a resumed input would not notice a loss before the last line
            self._set_paused("losses cannot be recorded in the checkpoint")
            return
        content = b"".join(self._lines)
        self._lines = []
        try:
            self.segments.append(content)
            self.throttle.resolve(f"spool disk {self.source}")
        except SegmentNotSynced:
            raise
        except OSError as error:
            self.throttle.warn(
                f"spool disk {self.source}",
                f"source {self.source}: {self.segments.folder} cannot be written "
                f"({error.strerror}); connected senders wait, datagrams are lost and "
                "counted",
                logging.ERROR,
            )
        waiting = (
            f"the spool is full: {self.segments.size} bytes wait in {self.segments.folder} "
            "(tailer.spool.bytes_max)"
        )
        self._set_paused(waiting if self.segments.is_full else "")

    def _set_paused(self, why: str) -> None:
        if why and not self.is_paused:
            self.throttle.warn(
                f"spool full {self.source}",
                f"source {self.source}: {why}; connected senders wait, datagrams are lost "
                "and counted",
            )
            paused = [key for key in self._selector.get_map().values() if not key.data.while_paused]
            for key in paused:
                self._selector.unregister(key.fileobj)
            self._paused += paused
            with self._changed:
                self.is_paused = True
                self._changed.notify_all()
        elif self.is_paused and not why:
            # the condition is kept until it has not occurred for a while: space is freed segment
            # by segment
            self.is_paused = False
            for key in self._paused:
                self._selector.register(key.fileobj, selectors.EVENT_READ, key.data)
            self._paused = []
        elif why:
            self.throttle.warn(f"spool full {self.source}", "it is still full")

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._wake_w, b"w")

    def _clear_wakeup(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_r, 4096)
        return True
