"""What goes on beside requests, and how often."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.service.harness import Harness, with_service

from hourmark.config.loading import Config
from hourmark_delivery_service.process import lifecycle
from hourmark_delivery_service.work.framing import Framing


@with_service()
async def test_an_idle_service_looks_once_a_second_whether_a_revision_needs_another_schema(
    h: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    turn = asyncio.sleep

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", sleep)

    class Reporter:
        async def run(self) -> None:
            return None

        async def send_goodbye(self) -> None:
            return None

    async def find_framing(*_: object) -> Framing | None:
        return h.service.framing

    monkeypatch.setattr(lifecycle, "find_framing", find_framing)
    async with lifecycle.progress_reporting(h.service, Config(), Reporter()):
        while len(slept) < 3:
            await turn(0)
    assert slept == [1.0, 1.0, 1.0]
