"""A TCP proxy that can be a bad network: cut, slow, silent, or one that loses answers after
requests went through.
"""

from __future__ import annotations

import asyncio
import enum
import random
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final

DELAY_S: Final = 0.3  # of each piece, each way
_PIECE: Final = 1 << 16
_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER: close by a reset, what is unsent is dropped


class Mode(enum.StrEnum):
    """What becomes of bytes."""

    OPEN = "open"
    CUT = "cut"  # connections are reset, new ones too
    DELAY = "delay"
    HALF_OPEN = "half-open"  # connections stand and are taken, and nothing comes through
    # the request arrives; of the answers half are dropped, and the connection reset
    ANSWERS_LOST = "answers-lost"


class Link:
    """From `port` on loopback to `target`. `set` may be called from any thread."""

    def __init__(self, port: int, target: tuple[str, int], network: Network) -> None:
        self.port, self._target, self._network = port, target, network
        self._mode, self._chance = Mode.OPEN, random.Random(port)
        self._open = set[asyncio.StreamWriter]()
        self.lost_answers = 0
        network.run(self._listen())

    def set(self, mode: Mode, pick: float = 0.0) -> None:
        """From now on; connections of before are reset where they could not go on whole."""
        self._network.run(self._set(mode, pick))

    async def _listen(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self._network.closing.append(server.close)

    async def _set(self, mode: Mode, pick: float) -> None:
        before, self._mode, self._chance = self._mode, mode, random.Random(pick)
        if mode is Mode.CUT or before is Mode.HALF_OPEN:  # what was swallowed is missing
            for writer in [*self._open]:
                _reset(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._mode is Mode.CUT:
            return _reset(writer)
        try:
            there_reader, there = await asyncio.open_connection(*self._target)
        except OSError:
            return _reset(writer)
        self._open |= {writer, there}
        try:
            await asyncio.gather(
                self._pump(reader, there, answers=False),
                self._pump(there_reader, writer, answers=True),
            )
        except OSError:
            pass
        finally:
            self._open -= {writer, there}
            _reset(writer)
            _reset(there)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        while piece := await reader.read(_PIECE):
            mode = self._mode
            if mode is Mode.DELAY:
                await asyncio.sleep(DELAY_S)
            elif mode is Mode.HALF_OPEN:
                continue
            elif mode is Mode.ANSWERS_LOST and answers and self._chance.random() < 0.5:
                self.lost_answers += 1
                raise ConnectionResetError("the answer is lost")
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


class Network:
    """The thread in which all links work."""

    def __init__(self) -> None:
        self.closing: list[Callable[[], None]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it there, and wait until it is done."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def stop(self) -> None:
        """End: all connections with it."""
        self.run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _end(self) -> None:
        for close in self.closing:
            close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


def _reset(writer: asyncio.StreamWriter) -> None:
    connection: socket.socket | None = writer.get_extra_info("socket")
    if connection is not None and connection.fileno() >= 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
