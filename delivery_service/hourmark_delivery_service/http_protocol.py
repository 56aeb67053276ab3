"""The HTTP server's own refusals, in the form of all errors: of what is no request, and of one whose body it never reads."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hourmark_delivery_service.answers import REFUSE_UPGRADE, EveryAnswer


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's, on httptools; the connection ends with the refusal."""

    def on_headers_complete(self) -> None:
        """Mark a request after whose headers the parser leaves HTTP, although something of HTTP or of a tunnel follows them."""
        connect = self.parser.get_method() == b"CONNECT"
        if connect:
            self.url = b"/"  # uvicorn cannot read host:port
        if self.parser.should_upgrade() and (connect or _has_body(self.headers)):
            self.scope["extensions"] = {REFUSE_UPGRADE: {}}
        super().on_headers_complete()

    def send_400_response(self, _: str) -> None:
        """Called by uvicorn when its parser gives up."""
        app = self.config.loaded_app
        assert isinstance(app, EveryAnswer)
        answer = app.malformed()
        headers = [*self.server_state.default_headers, *answer.raw_headers]
        lines = [b"HTTP/1.1 400 Bad Request", *(b": ".join(header) for header in headers), b"", bytes(answer.body)]
        self.transport.write(b"\r\n".join(lines))
        self.transport.close()


def _has_body(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(name == b"transfer-encoding" or (name == b"content-length" and int(value) > 0) for name, value in headers)
