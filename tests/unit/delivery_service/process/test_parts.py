"""What goes on beside requests, and how often."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from tests.support.service.harness import Harness, with_service

from hourmark.avro.registry import SchemaRegistry
from hourmark.config.loading import Config
from hourmark_delivery_service.process import lifecycle


@with_service()
async def test_an_idle_service_looks_once_a_second_whether_a_revision_needs_another_schema(
    h: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with (
        contextlib.closing(SchemaRegistry(Config().registry)) as registry,
        contextlib.suppress(asyncio.CancelledError),
    ):
        await lifecycle._follow_framing(h.service, registry)
    assert slept == [1.0, 1.0, 1.0]
