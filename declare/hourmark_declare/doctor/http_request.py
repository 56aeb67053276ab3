"""One HTTP request without a proxy, with the response and the server's clock."""

from __future__ import annotations

import email.utils
import ssl
import time
from http.client import HTTPException
from pathlib import Path
from typing import Final, NamedTuple
from urllib.error import HTTPError
from urllib.request import HTTPSHandler, ProxyHandler, build_opener

from hourmark.process.certificates import load_ca_certificates, load_certificate

_ANSWER_S: Final = 10.0
_BYTES_MAX: Final = 64 * 1024
TICK_MS: Final = 1000  # resolution of the header Date


class TimedResponse(NamedTuple):
    """An HTTP response, with the time of the server and of this machine.

    Attributes:
        status: HTTP status code.
        body: Response body, truncated to 64 KiB.
        date_ms: Time of the server from the header `Date`, in Unix milliseconds; None if the header
            is absent or invalid.
        begun_ms: Time of this machine before the request, in Unix milliseconds.
        ended_ms: Time of this machine after the response, in Unix milliseconds.
    """

    status: int
    body: bytes
    date_ms: int | None
    begun_ms: int
    ended_ms: int


def send_request(url: str, context: ssl.SSLContext | None = None) -> TimedResponse:
    """Send an HTTP GET request and return the response, whatever its status code.

    Proxy settings in the environment are ignored. A status such as 404 or 503 raises no exception.

    Args:
        url: HTTP or HTTPS URL.
        context: TLS context; None for Python's default context.

    Raises:
        OSError: The server does not respond within 10 seconds, its response is not HTTP, or the TLS
            handshake fails.
    """
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))
    begun_ms = _now_ms()
    try:
        with opener.open(url, timeout=_ANSWER_S) as answer:
            status, body, date = answer.status, answer.read(_BYTES_MAX), answer.headers.get("Date")
    except HTTPError as error:
        with error:
            status, body, date = error.code, error.read(_BYTES_MAX), error.headers.get("Date")
    except HTTPException as error:  # its text may contain a password from the URL
        raise OSError(f"no HTTP ({type(error).__name__})") from error
    return TimedResponse(status, body, _date_ms(date), begun_ms, _now_ms())


def create_tls_context(
    group: str, ca: Path | None, certificate: Path | None, key: Path | None
) -> ssl.SSLContext:
    """Create a TLS client context with the given CA and client certificates.

    Args:
        group: Name of the settings group, such as `tailer.tls`, for error messages.
        ca: File with CA certificates to trust in addition to those of the system; None for none.
        certificate: File with the client certificate; None for no client certificate.
        key: File with the private key; None if the certificate file contains the key.

    Raises:
        ConfigError: A file cannot be loaded.
    """
    context = ssl.create_default_context()
    if ca is not None:
        load_ca_certificates(context, f"{group}.ca", ca)
    if certificate is not None:
        load_certificate(context, group, certificate, key)
    return context


def _date_ms(date: str | None) -> int | None:
    try:
        return (
            None
            if date is None
            else round(email.utils.parsedate_to_datetime(date).timestamp() * 1000)
        )
    except ValueError:
        return None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
