"""The HTTP server's own refusal, in the form of all errors: what cannot be read as a request never reaches the application."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hourmark_delivery_service.answers import EveryAnswer


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's, on httptools; the connection ends with the refusal."""

    def send_400_response(self, _: str) -> None:
        """Called by uvicorn when its parser gives up."""
        app = self.config.loaded_app
        assert isinstance(app, EveryAnswer)
        answer = app.malformed()
        headers = [*self.server_state.default_headers, *answer.raw_headers]
        lines = [b"HTTP/1.1 400 Bad Request", *(b": ".join(header) for header in headers), b"", bytes(answer.body)]
        self.transport.write(b"\r\n".join(lines))
        self.transport.close()
