"""Reading and decompression of request bodies within size and memory limits.

A compressed body is rejected before it is decompressed beyond its limit. Memory is reserved for
each part when it arrives, and for the result of the decompression.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import zlib
from collections.abc import Callable
from typing import Final

import zstandard
from starlette.requests import Request as HttpRequest

from hourmark_delivery_service.errors import (
    BadRequest,
    ContentTooLarge,
    RequestTimeout,
    UnsupportedMediaType,
)
from hourmark_delivery_service.work.inflight import InflightRequest, InflightRequests
from hourmark_delivery_service.work.peer import peer_of
from hourmark_delivery_service.work.turns import Job
from hourmark_delivery_service.work.workers import FairExecutor

ENCODINGS: Final = ("zstd", "gzip", "x-gzip", "deflate", "identity")
COMPRESSED_SLACK: Final = 64 * 1024  # what compression may add to bytes that cannot be compressed
_LONG_BODY: Final = (
    64 * 1024
)  # above it, tiny frames by the thousand: inflated in a thread, so that others are not held up
_WINDOW_MAX: Final = 8 << 20  # of zstd; level 19 needs no more
_SKIPPABLE: Final = (
    0x184D2A5  # of zstd: a frame's magic number without its last 4 bits, which are free
)
_RUN_LENGTH: Final = 1  # of zstd: a block that is one byte, repeated
_FRAME_HEADER_MAX: Final = 18  # of zstd, with its magic number


def content_encoding(request: HttpRequest) -> str:
    """Return the content encoding of a request in lower case.

    Returns:
        One of `ENCODINGS`; `identity` if the request has no `Content-Encoding` header.

    Raises:
        UnsupportedMediaType: If the encoding is not supported. The message lists the supported
            encodings.
    """
    encoding = ", ".join(request.headers.getlist("content-encoding")).strip().lower() or "identity"
    if encoding not in ENCODINGS:
        raise UnsupportedMediaType(
            "encoding",
            f"Content-Encoding {encoding[:40]!r} is not supported",
            f"use {', '.join(ENCODINGS)}",
        )
    return encoding


def content_length(request: HttpRequest) -> int | None:
    """Return the value of the `Content-Length` header of a request in bytes.

    Returns None if the request has no such header.

    Raises:
        BadRequest: If the value is not a non-negative decimal number.
    """
    text = request.headers.get("content-length")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()):
        raise BadRequest(
            "content_length", "Content-Length is not a number", "send the body's length in bytes"
        )
    return int(text)


class BodyReader:
    """Reads and decompresses HTTP request bodies within limits on size, time and memory.

    Args:
        inflight: Requests in flight, which share a limit on memory.
        workers: Runs the decompression of long bodies.
        timeout_s: Maximum time in seconds to receive a body.
    """

    def __init__(self, inflight: InflightRequests, workers: FairExecutor, timeout_s: float) -> None:
        self._inflight = inflight
        self._workers = workers
        self._within_s = timeout_s

    async def read(self, http: HttpRequest, request: InflightRequest, bytes_max: int) -> bytes:
        """Read a request body, and return it decompressed.

        Memory is reserved for `request` while the body is received.

        Args:
            http: HTTP request whose body is read.
            request: In-flight entry of the request, which accounts for its memory.
            bytes_max: Maximum size of the decompressed body in bytes.

        Raises:
            UnsupportedMediaType: If the content encoding is not supported.
            ContentTooLarge: If the decompressed body exceeds `bytes_max`, or the compressed one
                exceeds it by more than 64 KiB.
            BadRequest: If the compressed data is invalid or truncated.
            RequestTimeout: If the body does not arrive in time, or stalls while memory is short.
            ServiceUnavailable: If requests in flight use all available memory.
            ClientDisconnect: If the client disconnects first.
        """
        encoding = content_encoding(http)
        sent = await self._read(
            http, request, bytes_max if encoding == "identity" else bytes_max + COMPRESSED_SLACK
        )
        if encoding == "identity":
            return sent
        if len(sent) > _LONG_BODY:
            plain = await self._workers.run_in_thread(
                Job(), lambda: decompress(encoding, sent, bytes_max), peer_of(http)
            )
        else:
            plain = decompress(encoding, sent, bytes_max)
        self._inflight.reserve_body(request, len(plain) - len(sent))
        return plain

    async def _read(self, http: HttpRequest, request: InflightRequest, bytes_max: int) -> bytes:
        declared = content_length(http)
        if declared is not None and declared > bytes_max:
            raise _too_large(bytes_max)
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._within_s) as limit:
                with self._inflight.reading(request, self._stop_of(limit)):
                    async for part in http.stream():
                        size += len(part)
                        if size > bytes_max:
                            raise _too_large(bytes_max)
                        self._inflight.reserve_body(request, len(part))
                        parts.append(part)
        except TimeoutError:
            raise self._too_slow() from None
        return b"".join(parts)

    def _stop_of(self, limit: asyncio.Timeout) -> Callable[[], None]:
        # Stops the reading of the current task. It raises at once if that task itself needs the
        # memory, so that no other body is stopped in vain.
        task = asyncio.current_task()

        def stop() -> None:
            if asyncio.current_task() is task:
                raise self._too_slow()
            if not limit.expired():  # an expired timeout cannot be rescheduled
                limit.reschedule(asyncio.get_running_loop().time())

        return stop

    def _too_slow(self) -> RequestTimeout:
        return RequestTimeout(
            "slow_body",
            f"the body was not received within {self._within_s:g} s, or its memory was needed "
            "for other requests",
            "send the same request again",
        )


def decompress(encoding: str, body: bytes, bytes_max: int) -> bytes:
    """Decompress a request body without exceeding a size limit.

    Decompression stops after `bytes_max` + 1 bytes, to protect against decompression bombs.

    Args:
        encoding: One of `ENCODINGS`.
        body: Compressed body.
        bytes_max: Maximum size of the result in bytes.

    Raises:
        ContentTooLarge: If the result exceeds `bytes_max`.
        BadRequest: If the body is not valid in this encoding, or is truncated.
    """
    if encoding == "identity":
        plain = body
    else:
        try:
            plain = _INFLATE[encoding](body, bytes_max + 1)
        except (zstandard.ZstdError, zlib.error, EOFError, gzip.BadGzipFile) as error:
            raise BadRequest(
                "broken_encoding", f"the body is not valid {encoding}: {error}", "compress it again"
            ) from error
    if len(plain) > bytes_max:
        raise _too_large(bytes_max)
    return plain


def _unzstd(body: bytes, size_max: int) -> bytes:
    decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_MAX)
    with decompressor.stream_reader(io.BytesIO(body), read_across_frames=True) as reader:
        plain = reader.read(size_max)
    if len(plain) < size_max:
        _check_frames(body)
    return plain


def _check_frames(body: bytes) -> None:
    # The zstd reader accepts a truncated last frame as if it were complete.
    at = 0
    while at < len(body):
        at = _end_of_frame(body, at)
    if at > len(body):
        raise EOFError("it ends within a frame")


def _end_of_frame(body: bytes, at: int) -> int:
    # RFC 8878 section 3.1. Returns an offset after the body if the frame is truncated.
    if int.from_bytes(body[at : at + 4], "little") >> 4 == _SKIPPABLE:
        return at + 8 + int.from_bytes(body[at + 4 : at + 8], "little")
    header = body[at : at + _FRAME_HEADER_MAX]
    checksum_size = 4 if zstandard.get_frame_parameters(header).has_checksum else 0
    at += zstandard.frame_header_size(header)
    last = 0
    while not last:
        if at >= len(body):
            return len(body) + 1
        block = int.from_bytes(body[at : at + 3], "little")
        last, kind, size = block & 1, block >> 1 & 3, block >> 3
        at += 3 + (1 if kind == _RUN_LENGTH else size)
    return at + checksum_size


def _gunzip(body: bytes, size_max: int) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(body)) as reader:
        return reader.read(size_max)


def _undeflate(body: bytes, size_max: int) -> bytes:
    # HTTP defines deflate as the zlib format (RFC 1950), but some clients send raw deflate (RFC
    # 1951).
    is_zlib = (
        len(body) >= 2 and body[0] & 0x0F == zlib.DEFLATED and int.from_bytes(body[:2]) % 31 == 0
    )
    inflater = zlib.decompressobj(zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS)
    plain = inflater.decompress(body, size_max)
    if len(plain) < size_max:
        plain += inflater.flush()
        if not inflater.eof:
            raise EOFError("it ends within its last block")
        if inflater.unused_data:
            raise zlib.error("it is followed by extra bytes")
    return plain


_INFLATE: Final = {"zstd": _unzstd, "gzip": _gunzip, "x-gzip": _gunzip, "deflate": _undeflate}


def _too_large(bytes_max: int) -> ContentTooLarge:
    return ContentTooLarge(
        "too_large", f"the body exceeds {bytes_max} bytes", "send smaller requests"
    )
