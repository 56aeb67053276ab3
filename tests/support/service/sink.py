"""A port that answers anything, and reads all that comes: what an attack costs the machine, and no
service.

`python -m tests.support.service.sink` prints its port.
"""

from __future__ import annotations

import asyncio
import contextlib
import os

import uvloop

REFUSAL = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection."""
    with contextlib.suppress(OSError):
        if await reader.read(1 << 16):
            writer.write(REFUSAL)
        while await reader.read(1 << 16):
            pass
        writer.close()


async def serve() -> None:
    server = await asyncio.start_server(swallow, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    os.nice(19)
    uvloop.run(serve())
