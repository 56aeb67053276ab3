"""Encoded bodies: whole, or refused.

What can be read of a body that was cut short is never taken for all of it.
"""

from __future__ import annotations

import contextlib
import gzip
import threading
from collections.abc import Callable, Iterator
from typing import Final

import httpx
import pytest
import zstandard
from tests.support.service.examples import HOST, syslog
from tests.support.service.harness import Harness, with_service
from tests.unit.delivery_service.edge.test_service_ranges import code

from hourmark.records.host_reports import HostReport
from hourmark.records.wire import report_to_json
from hourmark_delivery_service.errors import ServiceError
from hourmark_delivery_service.work import body as bodies
from hourmark_delivery_service.work.body import decompress

EVENTS: Final = b"".join(b'{"user":"u%d","ms":%d}\n' % (n, n) for n in range(200))
FEW_EVENTS: Final = b"".join(EVENTS.splitlines(keepends=True)[:12])
RANGE: Final = syslog() * 50
REPORT: Final = report_to_json(
    HostReport(
        host_id=HOST,
        host_name="web-1",
        kind="tailer",
        incarnation="i1",
        sequence=4,
        received_at_ms=0,
        goodbye=False,
        sources=(),
    )
)
PATHS: Final = ("events", "ranges", "reports")


def streamed(body: bytes) -> bytes:
    """As a client does that compresses while it reads: many blocks, flushed, no content size, with
    a checksum.
    """
    packer = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    parts = [
        packer.compress(body[at : at + 999]) + packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        for at in range(0, len(body), 999)
    ]
    return b"".join(parts) + packer.flush()


def repeated(body: bytes) -> bytes:
    """With a run-length block, whose size is that of its content."""
    return zstandard.compress(body + b" " * 300_000)


def framed(body: bytes) -> bytes:
    """Several frames, and one to be skipped, as pzstd makes them."""
    return (
        zstandard.compress(body[:50])
        + b"\x5e\x2a\x4d\x18\x03\0\0\0xyz"
        + zstandard.compress(body[50:])
    )


def members(body: bytes) -> bytes:
    return gzip.compress(body[:50]) + gzip.compress(body[50:])


PACKERS: Final[dict[str, tuple[str, Callable[[bytes], bytes]]]] = {
    "zstd": ("zstd", zstandard.compress),
    "zstd, streamed": ("zstd", streamed),
    "zstd, frames": ("zstd", framed),
    "gzip": ("gzip", gzip.compress),
    "gzip, members": ("gzip", members),
}


async def post(h: Harness, path: str, encoding: str, content: bytes) -> httpx.Response:
    if path == "ranges":
        return await h.post_range(RANGE, content=content, encoding=encoding)
    url = "/v1/reports" if path == "reports" else "/v1/events/click"
    return await h.client.post(url, content=content, headers={"Content-Encoding": encoding})


def plain(path: str) -> bytes:
    return {"events": EVENTS, "ranges": RANGE, "reports": REPORT}[path]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("packer", PACKERS)
@with_service()
async def test_a_whole_body_is_taken(h: Harness, packer: str, path: str) -> None:
    encoding, pack = PACKERS[packer]
    assert (await post(h, path, encoding, pack(plain(path)))).status_code == 200


@with_service()
async def test_a_run_of_one_byte_is_a_whole_body_too(h: Harness) -> None:
    assert (await h.post_events(repeated(EVENTS), Content_Encoding="zstd")).status_code == 200
    assert code(await h.post_events(repeated(EVENTS)[:-1], Content_Encoding="zstd")) == (
        400,
        "broken_encoding",
    )


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("packer", PACKERS)
@with_service()
async def test_a_body_that_is_cut_short_anywhere_is_refused(
    h: Harness, packer: str, path: str
) -> None:
    encoding, pack = PACKERS[packer]
    body = pack(plain(path))
    between = {len(zstandard.compress(plain(path)[:50])) + more for more in (0, 11)} | {
        len(gzip.compress(plain(path)[:50]))
    }
    for size in {
        *range(1, len(body), 7),
        *range(len(body) - 12, len(body)),
    } - between:  # there, it ends with a whole frame
        assert code(await post(h, path, encoding, body[:size])) == (400, "broken_encoding"), size
    assert h.queue.records == []


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("packer", PACKERS)
@with_service()
async def test_a_body_that_something_follows_is_refused(h: Harness, packer: str, path: str) -> None:
    encoding, pack = PACKERS[packer]
    body = pack(plain(path))
    for more in (
        b"x",
        b"\n",
        b"more than a few bytes of something else",
        body[:3],
        body[:-1],
        b"\0\x5e\x2a\x4d\x18\0\0\0\0",
    ):
        assert code(await post(h, path, encoding, body + more)) == (400, "broken_encoding"), more
    assert h.queue.records == []


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("packer", ["zstd", "gzip"])
def test_a_long_body_is_inflated_beside_the_event_loop(
    packer: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One body of very many tiny frames takes a second: nobody else may wait for it."""
    threads: list[int] = []

    def watched(encoding: str, body: bytes, bytes_max: int) -> bytes:
        threads.append(threading.get_ident())
        return decompress(encoding, body, bytes_max)

    monkeypatch.setattr(bodies, "decompress", watched)
    encoding, pack = PACKERS[packer]
    nothing = pack(b"")

    @with_service()
    async def posted(h: Harness) -> None:
        assert (
            await post(h, path, encoding, pack(plain(path)) + nothing * (100_000 // len(nothing)))
        ).status_code == 200

    posted()
    assert len(threads) == 1 and threads[0] != threading.get_ident()


@with_service()
async def test_zero_bytes_after_gzip_are_padding(h: Harness) -> None:
    """As RFC 1952's readers take them, and tape drives write them."""
    assert (
        await h.post_events(gzip.compress(EVENTS) + bytes(512), Content_Encoding="gzip")
    ).json()["events"] == 200
    assert code(
        await h.post_events(gzip.compress(EVENTS) + bytes(512) + b"x", Content_Encoding="gzip")
    ) == (
        400,
        "broken_encoding",
    )


@with_service()
async def test_an_encoding_that_is_not_understood_is_refused_and_so_are_two(h: Harness) -> None:
    for url, body in (("/v1/reports", REPORT), ("/v1/events/click", EVENTS)):
        for encodings in (("br",), ("gzip, zstd",), ("identity", "gzip"), ("gzip", "gzip")):
            headers = [("Content-Encoding", encoding) for encoding in encodings]
            answer = await h.client.post(url, content=gzip.compress(body), headers=headers)
            assert code(answer) == (415, "encoding"), encodings
    assert h.queue.records == []


def flips(body: bytes) -> Iterator[bytes]:
    """The body with each of its bits flipped in turn."""
    for bit in range(8 * len(body)):
        flipped = bytearray(body)
        flipped[bit // 8] ^= 1 << bit % 8
        yield bytes(flipped)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("encoding", "body"),
    [("zstd", streamed(FEW_EVENTS)), ("gzip", gzip.compress(FEW_EVENTS))],
    ids=["zstd", "gzip"],
)
@with_service()
async def test_with_a_checksum_no_flipped_bit_changes_an_event(
    h: Harness, encoding: str, body: bytes
) -> None:
    for number, flipped in enumerate(flips(body)):
        answer = await h.post_events(flipped, Content_Encoding=encoding)
        if answer.status_code == 200:
            assert (answer.json()["events"], answer.json()["dead_letters"]) == (12, 0), number
        else:
            assert code(answer) in ((400, "broken_encoding"), (413, "too_large")), number


def test_without_a_checksum_no_flipped_bit_takes_bytes_away() -> None:
    """Such a frame may hold other bytes than were sent, and never fewer."""
    for number, flipped in enumerate(flips(zstandard.compress(EVENTS))):
        with contextlib.suppress(ServiceError):
            assert len(decompress("zstd", flipped, 1 << 20)) >= len(EVENTS), number
