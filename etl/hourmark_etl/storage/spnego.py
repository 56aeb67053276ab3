"""SPNEGO headers (`Authorization: Negotiate`, RFC 4559) from a Kerberos keytab or ticket cache.

The package `gssapi` (extra `hourmark-etl[kerberos]`) is a binding of MIT Kerberos, which reads
`/etc/krb5.conf` and releases the GIL while it waits for a KDC. Each header from a keytab uses new
tickets, so none can have expired. They are in a memory cache, which lasts as long as the process,
about 1 kB for each header.
"""

from __future__ import annotations

import base64
import importlib
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from hourmark.config.groups import StorageSettings
from hourmark.errors import ConfigError

_MODULE: Final = "gssapi"
_SPNEGO: Final = "1.3.6.1.5.5.2"


class NegotiationFailed(Exception):
    """Raised if no ticket for a server could be obtained; the text is the reason of Kerberos."""


def check_login(principal: str, keytab: Path | None) -> None:
    """Check that the Kerberos library is installed and that the keytab has a key of the principal.

    No KDC is contacted, so the key may be outdated.

    Args:
        principal: The setting `storage.principal`.
        keytab: The setting `storage.keytab`; None if a ticket cache is used.

    Raises:
        ConfigError: The library is missing, the keytab cannot be read, or it does not have a key.
    """
    gssapi = _gssapi()
    if keytab is None:
        return
    try:
        _check_key(gssapi, principal, keytab)
    except NegotiationFailed as error:
        raise ConfigError(
            f"storage.keytab = {keytab}: {error}; create the keytab of storage.principal = "
            f"{principal} (kadmin ktadd), readable by the user of this process"
        ) from error


def negotiate_header(host: str, principal: str, keytab: Path | None) -> str:
    """Return the value of an Authorization header for one request to an HTTP server.

    It may contact a KDC, and block for as long as `/etc/krb5.conf` allows.

    Args:
        host: Host name of the server, whose service principal is `HTTP/host`.
        principal: Kerberos principal of the client.
        keytab: Keytab of the principal; None for the ticket cache of the process.

    Returns:
        `Negotiate`, a space and the token in base64. It is valid once.

    Raises:
        NegotiationFailed: The keytab or ticket is not valid, or no KDC responded.
        ConfigError: The library is not installed.
    """
    gssapi = _gssapi()
    if keytab is not None:
        _check_key(gssapi, principal, keytab)
    try:
        credentials = gssapi.Credentials(
            name=gssapi.Name(principal, gssapi.NameType.kerberos_principal),
            usage="initiate",
            store=_store(keytab),
        )
        context = gssapi.SecurityContext(
            name=gssapi.Name(f"HTTP@{host}", gssapi.NameType.hostbased_service),
            creds=credentials,
            mech=gssapi.OID.from_int_seq(_SPNEGO),
            usage="initiate",
        )
        token = context.step()
    except gssapi.exceptions.GSSError as error:
        raise NegotiationFailed(str(error)) from error
    return f"Negotiate {base64.b64encode(token).decode()}"


def authorizer(settings: StorageSettings) -> Callable[[str], str] | None:
    """Return a function that returns the Authorization header for a host name.

    Args:
        settings: The `storage` settings.

    Returns:
        The function, with the exceptions of `negotiate_header`; None without Kerberos.
    """
    if not settings.principal:
        return None
    return lambda host: negotiate_header(host, settings.principal, settings.keytab)


def _check_key(gssapi: Any, principal: str, keytab: Path) -> None:
    # Without it, gssapi reports that no credentials cache was found.
    try:
        keytab.open("rb").close()
        gssapi.Credentials(
            name=gssapi.Name(principal, gssapi.NameType.kerberos_principal),
            usage="accept",  # looks for the key in the keytab
            store={"keytab": f"FILE:{keytab}"},
        )
    except OSError as error:
        raise NegotiationFailed(f"the keytab cannot be read ({error.strerror})") from error
    except gssapi.exceptions.GSSError as error:
        raise NegotiationFailed(f"the keytab has no key of {principal} ({error})") from error


def _store(keytab: Path | None) -> dict[str, str] | None:
    if keytab is None:
        return None
    return {"client_keytab": f"FILE:{keytab}", "ccache": f"MEMORY:hourmark-{uuid.uuid4().hex}"}


def _gssapi() -> Any:
    try:
        return importlib.import_module(_MODULE)
    except ImportError as error:
        raise ConfigError(
            f"storage.principal requires the package gssapi ({error}); install "
            "hourmark-etl[kerberos], which needs a C compiler and the headers of MIT Kerberos "
            "(Debian: libkrb5-dev)"
        ) from error
