"""One question over HTTP, without a proxy: what was answered, and at what time by the server's
clock.
"""

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
TICK_MS: Final = 1000  # of the header Date


class Answered(NamedTuple):
    """`date_ms`: None where the server does not say; asked between `begun_ms` and `ended_ms` by
    this machine's clock.
    """

    status: int
    body: bytes
    date_ms: int | None
    begun_ms: int
    ended_ms: int


def ask(url: str, context: ssl.SSLContext | None = None) -> Answered:
    """Whatever the status is.

    OSError where nothing answers, it is no HTTP that does, or TLS does not come about.
    """
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))
    begun_ms = _now_ms()
    try:
        with opener.open(url, timeout=_ANSWER_S) as answer:
            status, body, date = answer.status, answer.read(_BYTES_MAX), answer.headers.get("Date")
    except HTTPError as error:
        with error:
            status, body, date = error.code, error.read(_BYTES_MAX), error.headers.get("Date")
    except HTTPException as error:  # what it says may hold a password of the URL
        raise OSError(f"no HTTP ({type(error).__name__})") from error
    return Answered(status, body, _date_ms(date), begun_ms, _now_ms())


def tls(group: str, ca: Path | None, certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    """As the settings of the group have it. ConfigError."""
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
