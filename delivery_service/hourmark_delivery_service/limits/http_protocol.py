"""The HTTP/1.1 server protocol, with limits on input that is not yet a request.

uvicorn and httptools limit neither headers nor connections. This module limits, each by a setting
of `[service]`: the size and number of headers, the time for headers and between requests, and the
number of connections (see `connections`). Bytes of a message outside its body (headers, chunk
sizes, trailers) are counted as they arrive, because httptools buffers a header that does not end.

A response that is sent before the request body was read closes the connection, because the rest of
the body must not be parsed as the next request. A request whose headers violate RFC 9112 is passed
to the application with its error, so that responses keep their order. Input that is not a request
is answered after all earlier requests.
"""

from __future__ import annotations

import asyncio
import ssl
from http import HTTPStatus
from typing import Any, ClassVar, Final

import httptools
import uvicorn
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hourmark.config.groups import ServiceSettings as Settings
from hourmark.errors import Finding
from hourmark_delivery_service.edge.responses import REFUSED, ResponseMiddleware
from hourmark_delivery_service.errors import (
    BadRequest,
    HeadersTooLarge,
    NotSupported,
    RequestTimeout,
    ServiceError,
    ServiceUnavailable,
)
from hourmark_delivery_service.limits.connections import (
    ConnectionLimiter,
    ConnectionPhase,
    TlsHandshake,
)
from hourmark_delivery_service.work.peer import ClientPeer, scope_extensions

_FRAMING: Final = 9  # bytes that may come for each byte of a body: a chunk of one byte has six
_CHUNKS_FREE: Final = 8192  # of one body; for each more there must be
_CHUNK_BYTES_MIN: Final = 64  # so many bytes of body
_FRAMING_HEADERS: Final = (b"content-length", b"transfer-encoding")
_PIPELINE_MAX: Final = 32  # requests that came before an earlier one was answered


_UVICORN: Final = (
    "0.54"  # the minor version whose inner attributes these are; pyproject.toml pins it
)
_PROTOCOL_METHODS: Final = (
    "_unset_keepalive_if_required",
    "connection_lost",
    "connection_made",
    "on_body",
    "on_header",
    "on_headers_complete",
    "on_message_begin",
    "on_message_complete",
    "on_response_complete",
    "on_url",
    "pause_writing",
    "resume_writing",
    "shutdown",
)
_PROTOCOL_ATTRIBUTES: Final = (
    "config",
    "cycle",
    "flow",
    "headers",
    "loop",
    "parser",
    "pipeline",
    "scope",
    "server_state",
    "transport",
)
_CYCLE_ATTRIBUTES: Final = (
    "disconnected",
    "keep_alive",
    "message_event",
    "more_body",
    "response_complete",
    "response_started",
    "scope",
    "transport",
)


def check_uvicorn(
    version: str = uvicorn.__version__,
    protocol: type[Any] = HttpToolsProtocol,
    cycle: type[Any] = httptools_impl.RequestResponseCycle,
) -> None:
    """Check that the installed uvicorn has the internal attributes that `HttpProtocol` relies on.

    Without them, limits on headers and connections could silently stop working.

    Args:
        version: Version of uvicorn.
        protocol: uvicorn's HTTP protocol class.
        cycle: uvicorn's class for a request and its response.

    Raises:
        Finding: If the minor version is not the tested one, or an attribute is missing. The message
            contains the version to install.
    """
    missing = [name for name in _PROTOCOL_METHODS if not callable(getattr(protocol, name, None))]
    missing += [
        name for name in _PROTOCOL_ATTRIBUTES if name not in protocol.__init__.__code__.co_names
    ]
    missing += [
        f"cycle.{name}"
        for name in _CYCLE_ATTRIBUTES
        if name not in cycle.__init__.__code__.co_names
    ]
    if missing or version.split(".")[:2] != _UVICORN.split("."):
        lacks = f" and lacks {', '.join(missing)}" if missing else ""
        raise Finding(
            f"uvicorn {version} is installed{lacks}; Hourmark requires uvicorn {_UVICORN}, "
            "because it uses internal attributes of uvicorn. Install the version listed in "
            "requirements.lock"
        )


def protocol_class_for(
    settings: Settings, tls_context: ssl.SSLContext | None = None
) -> type[asyncio.Protocol]:
    """Create the asyncio protocol class for the connections of one server.

    All connections of the class share the limits on headers, time and connections.

    Args:
        settings: Settings of the service with its limits.
        tls_context: TLS context, or None to serve plain HTTP.
    """
    door = ConnectionLimiter(settings)
    served = type("ServersProtocol", (HttpProtocol,), {"limiter": door})
    return (
        served
        if tls_context is None
        else type(
            "ServersHandshake",
            (TlsHandshake,),
            {"limiter": door, "tls_context": tls_context, "http_protocol": served},
        )
    )


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 protocol with additional limits on headers, time and connections.

    One instance serves one client connection in the event loop. `protocol_class_for` creates a
    subclass for each server.

    Attributes:
        limiter: Limits that all connections of the server share.
    """

    limiter: ClassVar[ConnectionLimiter]

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._peer = ClientPeer()
        self._in_head = False  # headers have begun and are not whole
        self._head_bytes = 0
        self._body_bytes = 0  # of what is being fed to the parser
        self._chunks = self._chunked_bytes = 0  # of this message so far
        self._began = False  # whether a message began in it
        self._allowance = 0  # bytes of this message that may still come without being its body
        self._keep_alive = False  # of the newest request, once its body is whole
        self._refusal: ServiceError | None = (
            None  # why a callback of the parser gave up; never raised itself
        )
        self._ended = False  # nothing that comes any more is read
        self._owed = 0  # answers to requests whose headers came
        self._waiting_refusal: ServiceError | None = (
            None  # of what came behind requests that are not answered yet
        )
        self._body_after_upgrade = (
            False  # the parser left HTTP before the body of a request whose offer is passed over
        )
        self._replaying = False  # a new parser is fed what it must know of that request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]  # uvicorn narrows it
        if not self.limiter.admit(self, ConnectionPhase.HEAD):
            busy = (
                f"all {self.limiter.settings.connections_max} connections "
                "(service.connections_max) are waiting for a response"
            )
            self._write(ServiceUnavailable("connections", busy))
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.limiter.connections.remove(self)
        self._ended = True
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._peer.mark_disconnected()
        self.pipeline.clear()
        # no circle: its memory is free once its endpoint ends
        self.cycle = None  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self._ended or self._waiting_refusal is not None:
            return
        self._unset_keepalive_if_required()
        self._began, self._body_bytes, size = False, 0, len(data)
        while data and not self._ended:
            data = self._feed(data)
        reads_on = not self._ended and self._waiting_refusal is None
        if (
            reads_on and not self._began
        ):  # what came with a message's first bytes may be of the one before
            self._allowance = min(
                self._allowance_max, self._allowance - size + _FRAMING * self._body_bytes
            )
            if self._allowance < 0:
                self._refuse(self._too_much())
        self._move()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._move()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._move()

    def shutdown(self) -> None:
        self._keep_alive = False
        super().shutdown()

    def abort(self) -> None:
        """Close the connection immediately, without responding to the requests in flight.

        Use `finish` to close the connection after a response.
        """
        self.limiter.connections.remove(self)
        self._ended = True
        self.transport.abort()

    def on_overdue(self, phase: ConnectionPhase) -> None:
        """Handle a missed deadline of the client.

        If the client has sent only a part of the headers in time, it gets an error response with
        status 408. Otherwise the connection is closed without a response.

        Args:
            phase: Phase whose time limit was exceeded.
        """
        if phase is ConnectionPhase.HEAD and self._in_head:
            limit_s = self.limiter.settings.header_seconds
            self._refuse(
                RequestTimeout(
                    "slow_headers",
                    f"the request headers were not received within {limit_s:g} s",
                    "send the same request again",
                )
            )
        else:
            self.abort()

    # What the parser calls

    def on_message_begin(self) -> None:
        if self._replaying:
            return
        super().on_message_begin()
        self._in_head = self._began = True
        self._head_bytes, self._allowance = 0, self._allowance_max
        self._chunks = self._chunked_bytes = 0
        if len(self.pipeline) >= _PIPELINE_MAX:
            raise self._give_up(
                BadRequest(
                    "pipeline",
                    f"over {_PIPELINE_MAX} pipelined requests wait for a response",
                    "send requests one by one",
                )
            )

    def on_url(self, url: bytes) -> None:
        if self._replaying:
            return
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # otherwise it is a trailer, which must never be taken for a header
            super().on_header(name, value)
            self._count(len(name) + len(value))

    def on_headers_complete(self) -> None:
        """Check the headers of a request and pass the request to the application.

        The HTTP parser calls this method at the end of the headers. A request whose headers violate
        RFC 9112 is marked, so that the application responds with an error.
        """
        if self._replaying:
            return
        self._in_head = False
        self._owed += 1
        # an object, for the application alone
        self.scope["extensions"] = scope_extensions(self._peer)  # type: ignore[typeddict-item]
        connect = self.parser.get_method() == b"CONNECT"
        if connect:
            self.url = b"/"  # uvicorn cannot read host:port
        refusal = _refusal_of_head(self.parser.get_http_version(), self.headers, connect=connect)
        if refusal is not None:
            self.scope["extensions"][REFUSED] = refusal  # type: ignore[assignment]  # as above
        self._body_after_upgrade = (
            self.parser.should_upgrade() and refusal is None and _has_body(self.headers)
        )
        super().on_headers_complete()
        self._keep_alive, self.cycle.keep_alive = self.cycle.keep_alive, False
        # it has what a cycle uses of a transport
        self.cycle.transport = _Answering(self)  # type: ignore[assignment]

    def on_chunk_header(self) -> None:
        # Each chunk is a call of this method, and one read can contain a hundred thousand chunks.
        self._chunks += 1
        if self._chunks > _CHUNKS_FREE + self._chunked_bytes // _CHUNK_BYTES_MIN:
            raise self._give_up(self._too_much())

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        self._chunked_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._body_after_upgrade:
            return
        if not self.cycle.response_started and REFUSED not in self.cycle.scope["extensions"]:
            self.cycle.keep_alive = self._keep_alive
        super().on_message_complete()

    # What a request's cycle calls

    def on_response_complete(self) -> None:
        self._owed -= 1
        if not self._ended:
            super().on_response_complete()
            self._move()
        if not self._ended and self._owed == 0 and self._waiting_refusal is not None:
            self._answer_refusal(self._waiting_refusal)

    def finish(self) -> None:
        """Close the connection after a response was written.

        If the client is still sending, only the write side is closed at first. The read side is
        closed after a time limit. This prevents a TCP reset that could discard the response before
        the client reads it. Further calls have no effect.
        """
        if self._ended:
            return
        self._ended = True
        if (
            self.cycle is None
            or self.cycle.more_body
            or self._in_head
            or self.parser.should_upgrade()
        ):
            if self.transport.can_write_eof():
                self.transport.write_eof()
            self.flow.resume_reading()
            self._move()
        else:
            self.transport.close()

    def _feed(self, data: bytes) -> bytes:
        # Returns the rest of the data after a request whose upgrade offer is ignored.
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if REFUSED in self.cycle.scope["extensions"]:
                return b""
            if self._body_after_upgrade:
                self._read_body_after_upgrade()
            return data[upgrade.args[0] :]
        except httptools.HttpParserError:
            malformed = BadRequest(
                "malformed",
                "this is not an HTTP/1.1 request",
                "send an HTTP/1.1 request to a path listed in docs/http-api.md",
            )
            self._refuse(self._refusal or malformed)
        return b""

    def _read_body_after_upgrade(self) -> None:
        # llhttp stops parsing after headers that offer an upgrade. A new parser continues, primed
        # with the length of the body.
        framing = [b": ".join(header) for header in self.headers if header[0] in _FRAMING_HEADERS]
        self.parser = httptools.HttpRequestParser(self)
        self._replaying = True
        self.parser.feed_data(b"\r\n".join([b"POST / HTTP/1.1", *framing, b"", b""]))
        self._replaying = self._body_after_upgrade = False

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if (
            self._head_bytes > self._allowance_max
            or len(self.headers) > self.limiter.settings.headers_max
        ):
            raise self._give_up(self._too_much())

    @property
    def _allowance_max(self) -> int:
        return self.limiter.settings.header_bytes_max

    def _too_much(self) -> ServiceError:
        settings = self.limiter.settings
        if not self._in_head:
            return BadRequest(
                "malformed",
                "the overhead of small chunks or trailers exceeds the size of the body",
                "send larger chunks",
            )
        limits = f"{settings.header_bytes_max} bytes and {settings.headers_max} headers"
        return HeadersTooLarge(
            "headers_too_large",
            f"a request must not exceed {limits}",
            "send fewer or shorter headers",
        )

    def _give_up(self, error: ServiceError) -> Exception:
        # Not the refusal itself: its traceback would keep this connection and its input in a
        # reference cycle.
        self._refusal = error
        return _GivenUp()

    def _refuse(self, error: ServiceError) -> None:
        # Answers only after all earlier requests: otherwise the client would take this for the
        # response to one of them.
        pending = (
            self.cycle if self.cycle is not None and not self.cycle.response_complete else None
        )
        if pending and pending.more_body and not self._in_head:  # it is the one that is refused
            if pending.response_started:
                self.abort()
                return
            self._owed -= 1
            if self.pipeline:  # it has not begun
                self.pipeline.popleft()
            else:
                pending.disconnected = True  # its endpoint waits for the rest of the body in vain
                pending.message_event.set()
        if self._owed:
            self._waiting_refusal = error
        else:
            self._answer_refusal(error)

    def _answer_refusal(self, error: ServiceError) -> None:
        self._waiting_refusal = None
        self._write(error)
        self._peer.mark_disconnected()
        self.finish()

    def _write(self, error: ServiceError) -> None:
        app = self.config.loaded_app
        assert isinstance(app, ResponseMiddleware)
        answer = app.refusal_response(error)
        status = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}".encode()
        headers = [*self.server_state.default_headers, *answer.raw_headers]
        lines = [status, *(b": ".join(header) for header in headers), b"", bytes(answer.body)]
        self.transport.write(b"\r\n".join(lines))

    def _move(self) -> None:
        if self.limiter.connections.get_phase(self) is not None:
            self.limiter.connections.set_phase(self, self._phase(), self.loop.time())

    def _phase(self) -> ConnectionPhase:
        if self._ended:
            return ConnectionPhase.LINGER
        if self.flow.write_paused:
            return ConnectionPhase.READ
        if self.cycle is not None and not self.cycle.response_complete:
            return (
                ConnectionPhase.BODY
                if self.cycle.more_body and not self.pipeline
                else ConnectionPhase.ANSWER
            )
        return ConnectionPhase.HEAD if self._in_head or self.cycle is None else ConnectionPhase.IDLE


class _GivenUp(Exception):
    pass


class _Answering:
    def __init__(self, protocol: HttpProtocol) -> None:
        self._protocol = protocol

    def write(self, data: bytes) -> None:
        if not self._protocol.transport.is_closing():
            self._protocol.transport.write(data)

    def is_closing(self) -> bool:
        return self._protocol.transport.is_closing()

    def close(self) -> None:
        self._protocol.finish()


def _has_body(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and int(value) > 0)
        for name, value in headers
    )


def _refusal_of_head(
    version: str, headers: list[tuple[bytes, bytes]], *, connect: bool
) -> ServiceError | None:
    # RFC 9112 sections 2.6, 3.2 and 6.1.
    if connect:
        return BadRequest(
            "upgrade", "this service is not a proxy", "send the request directly, without CONNECT"
        )
    if version not in ("1.0", "1.1"):
        return BadRequest(
            "http_version",
            f"the request uses HTTP/{version}, but this service supports only HTTP/1.1",
            "use HTTP/1.1",
        )
    hosts = sum(name == b"host" for name, _ in headers)
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        return BadRequest(
            "host", f"the request has {hosts} Host headers", "send exactly one Host header"
        )
    codings = b",".join(value for name, value in headers if name == b"transfer-encoding").lower()
    if codings and codings.strip() != b"chunked":
        return NotSupported(
            "transfer_encoding",
            f"the transfer coding {codings.decode('latin-1')[:80]!r} is not supported",
            "send Transfer-Encoding: chunked; compressed bodies have a Content-Encoding",
        )
    return None
