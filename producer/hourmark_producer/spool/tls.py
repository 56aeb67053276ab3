"""TLS of what listens for syslog (RFC 5425), 1.2 or newer. Files that change are read again before the next connection."""

from __future__ import annotations

import socket
import ssl
from typing import Final

from hourmark.certificates import WatchedFiles, load_cas, load_pair
from hourmark.config_groups import SyslogTls
from hourmark.errors import ConfigError
from hourmark_producer.throttle import Throttle

_GROUP: Final = "tailer.syslog.tls"


class Tls:
    """Certificates of one listener. ConfigError where they cannot be used."""

    def __init__(self, settings: SyslogTls, throttle: Throttle) -> None:
        self._settings, self._throttle = settings, throttle
        self._watched = WatchedFiles([settings.certificate, settings.key, settings.client_ca])
        self._context = _context(settings)

    def wrap(self, accepted: socket.socket) -> ssl.SSLSocket:
        """The handshake is part of the first reads."""
        if self._watched.changed():
            try:
                self._context = _context(self._settings)
                self._throttle.over(_GROUP)
            except ConfigError as error:
                self._throttle.warn(_GROUP, f"{error}. The certificates of before stay in use")
        return self._context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)


def _context(settings: SyslogTls) -> ssl.SSLContext:
    assert settings.certificate is not None, "it is checked at the start"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION  # who resumes, shows no certificate
    context.num_tickets = 0
    load_pair(context, _GROUP, settings.certificate, settings.key)
    if settings.client_ca is not None:
        load_cas(context, f"{_GROUP}.client_ca", settings.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context
