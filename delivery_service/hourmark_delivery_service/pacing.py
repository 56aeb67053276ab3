"""Records of a topic wait until those before them have landed, and then go all at once.

librdkafka's idempotent producer has no second request of a partition under way, beside those that it sent in one go. While
records wait in it for longer than the linger time, its thread asks the clock and the sockets without a pause: a whole core, for
as long as the brokers take. They wait here instead, for free, but for those that come before the linger time of the first is
over: they go in its request. Nothing rests on it: who has waited for `PATIENCE_S` goes anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

PATIENCE_S: Final = 1.0
LINGER_MS: Final = 5  # a range comes at once; waiting longer adds delay and little batching
_OPEN_S: Final = LINGER_MS / 1000 - 0.001  # handing over takes time too


class Gate:
    """Of one topic, in one event loop."""

    def __init__(self) -> None:
        self._under_way = 0
        self._closes_s = 0.0
        self._opens: asyncio.Event = asyncio.Event()

    async def passed(self) -> None:
        """Wait until all that went through before has landed. Those who wait go through together."""
        if self._under_way and asyncio.get_running_loop().time() > self._closes_s:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_S):
                    await self._opens.wait()

    def expect(self) -> None:
        """A part goes through."""
        if not self._under_way:
            self._closes_s = asyncio.get_running_loop().time() + _OPEN_S
        self._under_way += 1
        self._opens.clear()

    def landed(self) -> None:
        """It has ended, however it did."""
        self._under_way -= 1
        if not self._under_way:
            self._opens.set()
