"""The service in a process of its own, over a queue that keeps nothing.

`python -m tests.support.service.in_memory NAME=VALUE...` serves what `hourmark serve` does, without
Kafka, registry and rules topic, and prints its port. `tls.NAME=VALUE` is a setting of
`[service.tls]`.
"""

from __future__ import annotations

import socket
import sys

import uvloop
from tests.support.service.harness import Harness

from hourmark.clock import SystemClock
from hourmark.config.groups import ServiceTls
from hourmark.process.allocator import use_one_arena
from hourmark_delivery_service.limits.tls import ServerTls
from hourmark_delivery_service.process.server import HttpServer, tune_interpreter, uvicorn_config


class Forgets(list[object]):
    """Records of a queue that nobody reads."""

    def append(self, _: object) -> None:
        pass


async def serve(given: dict[str, str]) -> None:
    settings = {name: value for name, value in given.items() if not name.startswith("tls.")}
    of_tls = {
        name.removeprefix("tls."): value for name, value in given.items() if name.startswith("tls.")
    }
    tls = ServerTls(ServiceTls.model_validate(of_tls)) if of_tls else None
    harness = Harness(**settings, clock=SystemClock())
    harness.queue.records = Forgets()  # type: ignore[assignment]
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    print(listener.getsockname()[1], flush=True)
    async with harness.client:
        await HttpServer(uvicorn_config(harness.service, harness.config, tls)).serve(
            sockets=[listener]
        )


if __name__ == "__main__":
    use_one_arena()
    tune_interpreter()
    uvloop.run(serve(dict(pair.split("=") for pair in sys.argv[1:])))
