"""Credentials for the delivery services: the bearer token, and certificates for TLS.

The files are checked for changes at most once per `CHECK_INTERVAL_S` and read again if they
changed.
"""

from __future__ import annotations

import logging
import re
import ssl
import threading
from pathlib import Path
from typing import Final, NamedTuple

from hourmark.clock import Clock
from hourmark.config.groups import TailerSettings as TailerConfig
from hourmark.config.redaction import add_secret
from hourmark.errors import ConfigError
from hourmark.process.certificates import WatchedFiles, load_ca_certificates, load_certificate

_LOG = logging.getLogger(__name__)

CHECK_INTERVAL_S: Final = 1.0  # between checks for changed files
TOKEN_BYTES_MAX: Final = 4096
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*", re.ASCII)  # RFC 6750: b64token


class RequestCredentials(NamedTuple):
    """The token and the TLS settings for one request.

    When the files change, a new instance is created.

    Attributes:
        headers: Header fields for every request; empty without a token.
        tls: TLS settings for services with https:// URLs.
    """

    headers: dict[str, str]
    tls: ssl.SSLContext


class Credentials:
    """The token and TLS certificates of a tailer. They are reloaded when their files change.

    If a changed file cannot be used, an error is logged and the previous credentials stay in use.
    Thread-safe.

    Args:
        config: Settings with the paths of the token and the certificates.
        clock: Clock of this host.

    Raises:
        ConfigError: A file cannot be used when the object is created.
    """

    def __init__(self, config: TailerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._lock = threading.Lock()
        tls = config.tls
        self._files = WatchedFiles((config.token_file, tls.ca, tls.certificate, tls.key))
        self._checked_s = clock.monotonic_s()
        self._current = self._read()

    def current(self) -> RequestCredentials:
        """Return the credentials to use for the next request.

        The files are checked for changes at most once per second.

        Returns:
            The request headers with the token, and the TLS settings.
        """
        with self._lock:
            now_s = self._clock.monotonic_s()
            if now_s - self._checked_s >= CHECK_INTERVAL_S:
                self._checked_s = now_s
                if self._files.changed():
                    self._renew()
            return self._current

    def _renew(self) -> None:
        try:
            self._current = self._read()
        except ConfigError as error:
            _LOG.error(
                "token and certificates were not reloaded; the previous ones remain in use: %s",
                error,
            )
        else:
            _LOG.info("token and certificates were reloaded")

    def _read(self) -> RequestCredentials:
        token = self._config.token_file
        return RequestCredentials(
            {} if token is None else {"Authorization": f"Bearer {_token(token)}"}, self._context()
        )

    def _context(self) -> ssl.SSLContext:
        tls = self._config.tls
        context = (
            ssl.create_default_context()
            if tls.ca is None
            else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        )
        if tls.ca is not None:
            load_ca_certificates(context, "tailer.tls.ca", tls.ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if tls.certificate is not None:
            load_certificate(context, "tailer.tls", tls.certificate, tls.key)
        return context


def _token(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            text = opened.read(TOKEN_BYTES_MAX).decode("latin-1").strip()
    except OSError as error:
        raise ConfigError(
            f"tailer.token_file = {file}: {error.strerror}; write the output of `hourmark "
            "token create` to it"
        ) from error
    if not _TOKEN.fullmatch(text):
        raise ConfigError(
            f"tailer.token_file = {file} contains no valid token; write the output of "
            "`hourmark token create` to it"
        )
    add_secret(text)
    return text
