"""TLS contexts for HTTPS connections to NameNodes and DataNodes."""

from __future__ import annotations

import functools
import ssl
from pathlib import Path


def client_context(ca: Path | None) -> ssl.SSLContext:
    """Return a TLS context that verifies the certificates and host names of servers.

    Contexts are cached. If the file has changed, a new context is created, so new connections use
    the new certificates without a restart.

    Args:
        ca: PEM file with the CA certificates to trust; None for those of the system.

    Raises:
        OSError: The file cannot be read, or contains no certificates.
    """
    return _context(ca, ca.stat().st_mtime_ns if ca is not None else 0)


@functools.lru_cache(maxsize=8)
def _context(ca: Path | None, _changed_ns: int) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca)
