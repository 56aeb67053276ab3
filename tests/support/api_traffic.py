"""A program that posts events over HTTP, one after the other, each until it is acknowledged, and
its own record of them.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import threading
import time
from collections.abc import Sequence
from typing import Final

import httpx

from hourmark.records.wire import CLIENT_HEADER, OBSERVED_AT_HEADER
from hourmark_verify.judge.expectations import ApiEvent

PAUSE_S: Final = 0.2
_LAST_ANSWER_S: Final = 180.0
_CLIENT: Final = "pinger"


class ApiTraffic:
    """Posts events of one field, `number`: under its own name, so a retry, through whichever
    service, is the same event.

    `taken` is the record of what was acknowledged; after `stop`, of all that was posted. `twice`:
    how likely an event is posted again after its answer. `observed`: each says when it was seen, so
    that a service whose clock is hours behind refuses it.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        event_type: str,
        taken: list[ApiEvent],
        *,
        timeout_s: float = 90.0,
        twice: float = 0.0,
        observed: bool = False,
        seed: int = 0,
    ) -> None:
        self.taken = taken
        self._urls = itertools.cycle(f"{address}/v1/events/{event_type}" for address in addresses)
        self._url = next(self._urls)
        self._type, self._timeout_s, self._twice, self._chance = (
            event_type,
            timeout_s,
            twice,
            random.Random(seed),
        )
        self._observed = observed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="api-traffic", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, once the event under way is acknowledged too."""
        self._stop.set()
        self._thread.join(_LAST_ANSWER_S)
        assert not self._thread.is_alive(), (
            f"event {len(self.taken)} was not acknowledged within {_LAST_ANSWER_S} s"
        )

    def _run(self) -> None:
        with httpx.Client(
            timeout=self._timeout_s, trust_env=False, headers={CLIENT_HEADER: _CLIENT}
        ) as client:
            while not self._stop.is_set():
                event = self._next()
                self._post(client, event)
                self.taken.append(event)
                if self._chance.random() < self._twice:
                    self._post(client, event)
                self._stop.wait(PAUSE_S)

    def _next(self) -> ApiEvent:
        number, time_ms = len(self.taken), time.time_ns() // 1_000_000
        return ApiEvent(
            type=self._type,
            client=_CLIENT,
            event_id=f"ping-{number}",
            time_ms=time_ms,
            position=0,
            fields={"number": number},
        )

    def _post(self, client: httpx.Client, event: ApiEvent) -> None:
        body = json.dumps({"event_id": event.event_id, "event_time": event.time_ms, **event.fields})
        headers = {OBSERVED_AT_HEADER: str(event.time_ms)} if self._observed else {}
        while True:
            with contextlib.suppress(httpx.HTTPError):
                if (
                    client.post(self._url, content=body, headers=headers).status_code
                    == httpx.codes.OK
                ):
                    return
            self._url = next(self._urls)
            threading.Event().wait(PAUSE_S)  # after `stop` too
