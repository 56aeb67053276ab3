"""TLS certificates of the service's port, which can be replaced while the service runs.

New connections use the new certificates. If the new files cannot be loaded as a whole, for example
because the key does not match, the service logs an error and keeps the old certificates.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Final

from hourmark.config.groups import ServiceTls
from hourmark.errors import ConfigError
from hourmark.process.certificates import WatchedFiles, load_ca_certificates, load_certificate

_LOG = logging.getLogger(__name__)

POLL_S: Final = 2.0  # between checks for changed files


class ServerTls:
    """The TLS context of the service's port, with certificates that can be reloaded while it runs.

    New connections use the new certificates; existing connections keep the old ones.

    Args:
        settings: Paths of the certificate, its key and the CA of client certificates. A certificate
            is required.

    Attributes:
        context: TLS context for the server. Each handshake uses the latest certificates.

    Raises:
        ConfigError: If the certificates cannot be loaded at startup.
    """

    def __init__(self, settings: ServiceTls) -> None:
        assert settings.certificate is not None, "without a certificate there is no TLS"
        self._settings = settings
        self._files = WatchedFiles((settings.certificate, settings.key, settings.client_ca))
        self._current = _context(settings)
        self.context = _context(settings)
        self.context.sni_callback = self._choose

    def reload(self) -> bool:
        """Reload the certificate files for new connections.

        Returns:
            True if all files were loaded. False if loading failed; the error is logged, and the old
            certificates remain in use.
        """
        try:
            self._current = _context(self._settings)
        except ConfigError as error:
            _LOG.error("certificates were not reloaded; the previous ones remain in use: %s", error)
            return False
        _LOG.info("certificates were reloaded")
        return True

    async def watch(self) -> None:
        """Reload the certificates whenever a file changes, until the task is cancelled.

        The files are checked every two seconds. If new files cannot be loaded, the error is logged
        and the old certificates remain in use.
        """
        while True:
            await asyncio.sleep(POLL_S)
            if self._files.changed():
                self.reload()

    def _choose(self, connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        # An SNI callback, which OpenSSL calls in each handshake, with or without a server name: a
        # listener's context cannot be replaced.
        connection.context = self._current


def _context(settings: ServiceTls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= (
        ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    )  # a resumed session presents no certificate, so a removed CA would stay trusted
    context.num_tickets = 0
    assert settings.certificate is not None
    load_certificate(context, "service.tls", settings.certificate, settings.key)
    if settings.client_ca is not None:
        load_ca_certificates(context, "service.tls.client_ca", settings.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED if settings.client_required else ssl.CERT_OPTIONAL
    return context
