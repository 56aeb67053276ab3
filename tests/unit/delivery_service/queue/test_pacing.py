"""Who waits at a topic's gate, and until when."""

from __future__ import annotations

import asyncio

from tests.support.service.harness import with_scene

from hourmark_delivery_service.queue.running_producer import AppendPacer

OPEN_S = 0.5  # the product's 4 ms pass between two lines of a test on a loaded machine


class Line:
    """Appends that come to one gate; `gone` tells which went through."""

    def __init__(self) -> None:
        self.gate = AppendPacer(OPEN_S)
        self.gone: list[str] = []

    async def __aenter__(self) -> Line:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def come(self, name: str) -> asyncio.Task[None]:
        async def go() -> None:
            await self.gate.wait()
            self.gate.add_pending()
            self.gone.append(name)

        task = asyncio.create_task(go())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return task


@with_scene(Line)
async def test_who_comes_within_the_linger_time_goes_along(line: Line) -> None:
    await line.come("first")
    await line.come("second")
    assert line.gone == ["first", "second"]


@with_scene(Line)
async def test_who_comes_later_waits_for_the_last_of_them_and_goes_with_others(line: Line) -> None:
    await line.come("first")
    await line.come("second")
    await asyncio.sleep(OPEN_S)
    waiting = [await line.come("third"), await line.come("fourth")]
    line.gate.remove_pending()
    await asyncio.sleep(0.01)
    assert line.gone == ["first", "second"]
    line.gate.remove_pending()
    await asyncio.gather(*waiting)
    assert line.gone[2:] == ["third", "fourth"]


@with_scene(Line)
async def test_patience_ends(line: Line) -> None:
    line.gate = AppendPacer(OPEN_S, patience_s=0.02)
    await line.come("first")
    await asyncio.sleep(OPEN_S)
    await (await line.come("second"))
    assert line.gone == ["first", "second"]
