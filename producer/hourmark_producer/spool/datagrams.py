"""Syslog over UDP (RFC 5426): a message a datagram, and nobody waits for anybody.

What finds no room is read and counted, in bytes. What the kernel drops it counts itself, in datagrams, so of bytes nothing is
known. Its counter (SO_MEMINFO, Linux 4.12) is read after each round, before the source may be called caught up: a control message
with a datagram (SO_RXQ_OVFL) tells of drops before that datagram only, and never of those at the end of a burst. What comes while
no tailer runs is not known to anyone: each start after the first reports an unknown loss.
"""

from __future__ import annotations

import logging
import socket
import struct
from typing import TYPE_CHECKING, Final

from hourmark_producer.spool.messages import line_of
from hourmark_producer.spool.receiver import Polled
from hourmark_producer.spool.streams import listening

if TYPE_CHECKING:
    from hourmark_producer.spool.receiver import Receiver

_DATAGRAM_BYTES_MAX: Final = 1 << 16
_A_ROUND: Final = 1000  # datagrams
_SO_MEMINFO: Final = 55  # asm-generic/socket.h; Python has no name for it
_KERNEL_BYTES: Final = 8 << 20  # asked for; the system gives net.core.rmem_max at most
_MEMINFO: Final = struct.Struct("=32xI")  # linux/sock_diag.h: SK_MEMINFO_DROPS is the ninth of its numbers
_LOG = logging.getLogger(__name__)


class Datagrams:
    """One address to listen at."""

    is_lost_in_between = True
    is_at_hand = True
    has_end = False
    resumes = False

    def __init__(self, address: tuple[str, int], message_bytes_max: int) -> None:
        self._asked, self._message_bytes_max = address, message_bytes_max
        self._dropped = 0  # by the kernel, since the socket is there

    def open(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._socket = listening(self._asked, socket.SOCK_DGRAM, receiver.source)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _KERNEL_BYTES)
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        receiver.watch(self._socket.fileno(), Polled(self._read, when_held=True))
        _LOG.info("source %s listens for syslog over UDP at %s port %d", receiver.source, *self.address)

    def tend(self, now_s: float) -> None:  # noqa: ARG002  # as `Input` has it
        self._count_dropped()

    def close(self) -> None:
        self._count_dropped()
        self._receiver.unwatch(self._socket.fileno())
        self._socket.close()

    def _read(self) -> bool:
        for _ in range(_A_ROUND):
            try:
                message = self._socket.recv(_DATAGRAM_BYTES_MAX)
            except BlockingIOError:
                return True
            self._take(message)
        return False

    def _take(self, message: bytes) -> None:
        losses, limit = self._receiver.losses, self._message_bytes_max
        if len(message) > limit:
            losses.add(f"messages longer than {limit} bytes (tailer.syslog.message_bytes_max)", lost_bytes=len(message))
        elif self._receiver.is_held:
            losses.add("datagrams for which there was no room (tailer.spool.bytes_max)", lost_bytes=len(message))
        else:
            self._receiver.receive(line_of(message))

    def _count_dropped(self) -> None:
        """Report what the kernel has dropped since the call before."""
        (count,) = _MEMINFO.unpack(self._socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size))
        if more := (count - self._dropped) % (1 << 32):
            self._receiver.losses.add("datagrams that the kernel dropped, coming faster than they were read", unknown=more)
        self._dropped = count
