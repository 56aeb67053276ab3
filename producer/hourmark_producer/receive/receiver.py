"""The thread of one source that receives, and its losses until they are in the checkpoint.

What was received, or came in vain, and is on no disk: gathered, and put into the checkpoint before
a claim is made past it.

The thread of one source: waits for bytes, makes lines of them, and appends these to the source's
segments.

It goes in rounds: all that is ready is read once, and what that came to is one append, one sync.
While there is no room, streams are not read, so that their senders wait; datagrams are read,
counted as lost, and dropped. `settle` asks for a round that began after it and left nothing behind:
only with it a source may be called caught up.
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
from hourmark_producer.receive.segments import Segments, Unsynced

TOLD_EVERY_S: Final = 1.0  # a flood is one occasion a second
_LOG = logging.getLogger(__name__)


class ReceivingLosses:
    """Those of one source, from one thread."""

    def __init__(
        self, source: str, address: str, checkpoint: Checkpoint, counters: Counters, clock: Clock
    ) -> None:
        self._source, self._address = source, address
        self._checkpoint, self._counters, self._clock = checkpoint, counters, clock
        self._pending: dict[
            str, tuple[int, int]
        ] = {}  # by what happened: bytes, and occasions of more
        self._told_s = float("-inf")

    def add(self, what: str, *, lost_bytes: int = 0, unknown: int = 0) -> None:
        """Bytes that are known to be lost; or on so many occasions nobody knows how many."""
        before, occasions = self._pending.get(what, (0, 0))
        self._pending[what] = (before + lost_bytes, occasions + unknown)

    def tell(self, *, at_once: bool = False) -> bool:
        """Write down what there is; whether nothing is left to be written."""
        now_s = self._clock.monotonic_s()
        if not self._pending:
            return True
        if not at_once and now_s - self._told_s < TOLD_EVERY_S:
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
        self._pending, self._told_s = {}, now_s
        for loss in losses:
            self._counters.add_loss(loss)
            _LOG.warning(
                "source %s, %s: %s; %d bytes are known to be lost%s",
                loss.source,
                loss.path,
                loss.what,
                loss.bytes,
                f", and on {loss.unknown} occasions it is unknown how many" if loss.unknown else "",
            )
        return True


READ_BYTES: Final = 1 << 16  # of one connection in one round
_WAIT_S: Final = 0.5  # between looks at the clock
_LAST_ROUNDS: Final = 64  # of a stop
_HELD_WAIT_S: Final = 0.05  # between looks whether there is room


class Polled(NamedTuple):
    """What to do with what is ready.

    `read`: whether it left nothing there. `when_held`: also where there is no room.
    """

    read: Callable[[], bool]
    when_held: bool = False


class Input(Protocol):
    """What a source receives. Used by the receiver's thread, but for `open`."""

    is_lost_in_between: bool  # what comes while nobody receives is lost, and the sender cannot know
    has_end: bool  # a drain reads it to there
    resumes: bool  # it can be asked again, from the last line on

    @property
    def is_at_hand(self) -> bool:
        """Whether what has come is ready to be read. While it is not, nothing is settled, though
        nothing is ready.
        """
        ...

    def open(self, receiver: Receiver) -> None:
        """Watch what there is. ConfigError where that cannot be had."""
        ...

    def tend(self, now_s: float) -> None:
        """Now and then."""
        ...

    def close(self) -> None:
        """Let go of all."""
        ...


@dataclasses.dataclass(eq=False, kw_only=True)
class Receiver:
    """One source's. `failed` is called with an error that ends the tailer."""

    source: str
    input: Input
    segments: Segments
    losses: ReceivingLosses
    throttle: ConditionLog
    clock: Clock
    failed: Callable[[Exception], None]

    def __post_init__(self) -> None:
        self.is_held = False
        self.has_ended = False  # there is nothing more to come, ever
        self.to_end = False  # it ends where there is nothing more for now
        self._lines: list[bytes] = []
        self._selector = selectors.PollSelector()  # regular files too, as standard input may be one
        self._paused: list[selectors.SelectorKey] = []
        self._wake_r, self._wake_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._changed = threading.Condition()
        self._wanted = self._settled = 0
        self._stopping = self._ending = False
        self._thread = threading.Thread(target=self._run, name=f"spool {self.source}", daemon=True)

    def start(self, *, to_end: bool = False) -> None:
        """Begin to receive. `to_end`: what there is now."""
        self.to_end = to_end
        self._selector.register(
            self._wake_r, selectors.EVENT_READ, Polled(self._woken, when_held=True)
        )
        self.count_the_run_before()
        was_open = self.segments.was_left_open()
        self.segments.mark_open()  # before anything can arrive
        try:
            self.input.open(self)
        except BaseException:
            if not was_open:
                self.segments.unmark()
            raise
        self._thread.start()

    def count_the_run_before(self) -> None:
        """What may have been lost since, or with it; also where nothing is received from now on, as
        in a drain.
        """
        if self.segments.was_left_open() and not self.input.resumes:
            why = (
                "nobody listened since the run before"
                if self.input.is_lost_in_between
                else "the run before was killed: what it had received and not yet written"
            )
            self.losses.add(why, unknown=1)

    def has_told(self) -> bool:
        """Where nothing is received: whether what the run before may have lost is written down, as
        it must be before a claim.
        """
        if told := self.losses.tell(at_once=True):
            self._unmark()
        return told

    def stop(self, within_s: float) -> None:
        """Write what has arrived, and end."""
        self._stopping = True
        self._wake()
        if self._thread.ident is not None:
            self._thread.join(within_s)

    def settle(self, within_s: float) -> bool:
        """Whether all that had arrived when this was called is on disk, where the tailer follows
        it.
        """
        with self._changed:
            self._wanted += 1
            goal = self._wanted
            self._wake()
            self._changed.wait_for(
                lambda: self._settled >= goal or self.has_ended or self.is_held, within_s
            )
            return self._settled >= goal or self.has_ended

    def watch(self, what: int, polled: Polled) -> None:
        """From now on."""
        if self.is_held and not polled.when_held:
            self._paused.append(selectors.SelectorKey(what, what, selectors.EVENT_READ, polled))
        else:
            self._selector.register(what, selectors.EVENT_READ, polled)

    def unwatch(self, what: int) -> None:
        """Before it is closed."""
        self._paused = [key for key in self._paused if key.fd != what]
        with contextlib.suppress(KeyError):
            self._selector.unregister(what)

    def receive(self, line: bytes) -> None:
        """Part of this round's append."""
        self._lines.append(line)

    def end(self) -> None:
        """Nothing more will come."""
        self._ending = True

    def _run(self) -> None:
        try:
            while not self._stopping and (not self._ending or self.segments.unwritten_bytes):
                self._round(_HELD_WAIT_S if self.is_held else _WAIT_S)
            if not self._read_out() and not self.input.resumes:
                self.losses.add("stopped before all was read that had arrived", unknown=1)
            self.input.close()
            self._write()
            if unwritten := self.segments.unwritten_bytes:
                self.losses.add("stopped before it could be written", lost_bytes=unwritten)
            told = self.losses.tell(at_once=True)
            self.segments.close()
            if told:
                self._unmark()
        except Exception as error:  # noqa: BLE001  # handed to the main thread, which ends with it
            self.failed(error)
        finally:
            with self._changed:
                self.has_ended = True
                self._changed.notify_all()

    def _unmark(self) -> None:
        if not self.input.is_lost_in_between:
            self.segments.unmark()

    def _read_out(self) -> bool:
        """Whether nothing is left that had arrived."""
        return any(self._round(0) for _ in range(_LAST_ROUNDS)) and not self.is_held

    def _round(self, wait_s: float) -> bool:
        """Whether it left nothing behind."""
        goal = self._wanted
        drained = self.input.is_at_hand
        for key, _ in self._selector.select(
            0 if goal > self._settled and not self.is_held else wait_s
        ):
            drained &= key.data.read()
        self._write()
        self.input.tend(self.clock.monotonic_s())
        told = self.losses.tell(at_once=goal > self._settled)
        if drained and told and not self.is_held and goal > self._settled:
            with self._changed:
                self._settled = goal
                self._changed.notify_all()
        return drained

    def _write(self) -> None:
        if self.input.resumes and not self.losses.tell(
            at_once=True
        ):  # lines behind a loss would hide it from a run after a kill
            self._hold("what was lost cannot be written down")
            return
        content = b"".join(self._lines)
        self._lines = []
        try:
            self.segments.append(content)
            self.throttle.resolve(f"spool disk {self.source}")
        except Unsynced:
            raise
        except OSError as error:
            self.throttle.warn(
                f"spool disk {self.source}",
                f"source {self.source}: {self.segments.folder} cannot be written "
                f"({error.strerror}); its senders wait, what "
                "needs no connection is lost and counted",
                logging.ERROR,
            )
        waiting = (
            f"{self.segments.size} bytes wait in {self.segments.folder}, and no more may "
            "(tailer.spool.bytes_max)"
        )
        self._hold(waiting if self.segments.is_full else "")

    def _hold(self, why: str) -> None:
        """Read no more; or go on, where there is no reason."""
        if why and not self.is_held:
            self.throttle.warn(
                f"spool full {self.source}",
                f"source {self.source}: {why}; its senders wait, what needs no connection "
                "is lost and counted",
            )
            paused = [key for key in self._selector.get_map().values() if not key.data.when_held]
            for key in paused:
                self._selector.unregister(key.fileobj)
            self._paused += paused
            with self._changed:
                self.is_held = True
                self._changed.notify_all()
        elif self.is_held and not why:
            # the condition goes on until it was not met for a while: room comes and goes by
            # segments
            self.is_held = False
            for key in self._paused:
                self._selector.register(key.fileobj, selectors.EVENT_READ, key.data)
            self._paused = []
        elif why:
            self.throttle.warn(f"spool full {self.source}", "it is full still")

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._wake_w, b"w")

    def _woken(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_r, 4096)
        return True
