"""TLS of the service's port.

Certificates are replaced while it runs: whoever connects from then on sees the new ones.

New files are taken only as a whole: a certificate without its key, or half a file, is told and
leaves the old ones in force.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Final

from hourmark.config.groups import ServiceTls
from hourmark.errors import ConfigError
from hourmark.process.certificates import WatchedFiles, load_cas, load_pair

_LOG = logging.getLogger(__name__)

LOOK_S: Final = 2.0  # between looks whether files changed


class ServerTls:
    """What the server's listener is given as `context`.

    ConfigError where the files cannot be used at the start.
    """

    def __init__(self, settings: ServiceTls) -> None:
        assert settings.certificate is not None, "without a certificate there is no TLS"
        self._settings = settings
        self._files = WatchedFiles((settings.certificate, settings.key, settings.client_ca))
        self._current = _context(settings)
        self.context = _context(settings)
        self.context.sni_callback = self._choose

    def reload(self) -> bool:
        """Read the files again; whether they could be used.

        Connections that stand are left as they are.
        """
        try:
            self._current = _context(self._settings)
        except ConfigError as error:
            _LOG.error("the certificates stay as they were: %s", error)
            return False
        _LOG.info("certificates were read again")
        return True

    async def watch(self) -> None:
        """Reload whenever a file has changed, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            if self._files.changed():
                self.reload()

    def _choose(self, connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        """Called in each handshake, with or without a name: a listener cannot be given another
        context.
        """
        connection.context = self._current


def _context(settings: ServiceTls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= (
        ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    )  # who resumes, shows no certificate: a withdrawn CA would live on
    context.num_tickets = 0
    assert settings.certificate is not None
    load_pair(context, "service.tls", settings.certificate, settings.key)
    if settings.client_ca is not None:
        load_cas(context, "service.tls.client_ca", settings.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED if settings.client_required else ssl.CERT_OPTIONAL
    return context
