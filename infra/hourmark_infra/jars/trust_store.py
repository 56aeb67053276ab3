"""CAs that Java trusts: a Java key store (JKS) with the certificates of `$SSL_CERT_FILE`.

Java ignores this variable, which Python, pip, uv and curl read, and the PEM format. It also cannot
read a PKCS #12 file from OpenSSL before version 3.2 as a list of trusted CAs. The format of a JKS
file is defined by `sun.security.provider.JavaKeyStore`, version 2.
"""

from __future__ import annotations

import hashlib
import re
import ssl
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from hourmark.errors import ConfigError

_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_DEBIAN: Final = Path(
    "/etc/ssl/certs/java/cacerts"
)  # the machine's trusted CAs, if Java is a package
_PASSWORD: Final = "changeit"  # noqa: S105  # Java's default; the file contains no secret
_TRUSTED: Final = 2  # tag of an entry that is a trusted certificate


def trust_store_options(environment: Mapping[str, str], store: Path) -> tuple[str, ...]:
    """Return the Java options that specify the trusted CAs for TLS.

    Args:
        environment: Names and values of environment variables. If `SSL_CERT_FILE` is set, the
            certificates in this file are trusted; otherwise those in Debian's key store, if there
            is one.
        store: Path of the key store to write if `SSL_CERT_FILE` is set. It is overwritten.

    Returns:
        Options for the `java` command; empty if the default CAs of Java apply.

    Raises:
        ConfigError: The file in `SSL_CERT_FILE` cannot be read or contains no valid certificate.
    """
    if not (named := environment.get("SSL_CERT_FILE")):
        return (f"-Djavax.net.ssl.trustStore={_DEBIAN}",) if _DEBIAN.is_file() else ()
    try:
        certificates = _PEM.findall(Path(named).read_text("ascii", errors="replace"))
        encoded = [ssl.PEM_cert_to_DER_cert(each) for each in certificates]
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"SSL_CERT_FILE = {named!r} cannot be read: {error}; set it to a file with "
            "certificates in PEM format, or unset it"
        ) from error
    if not encoded:
        raise ConfigError(
            f"SSL_CERT_FILE = {named!r} has no certificates; set it to a file with certificates "
            "in PEM format, or unset it"
        )
    store.write_bytes(render_key_store(encoded))
    return (f"-Djavax.net.ssl.trustStore={store}", "-Djavax.net.ssl.trustStoreType=jks")


def render_key_store(certificates: Sequence[bytes]) -> bytes:
    """Create a Java key store (JKS) of trusted certificates.

    Args:
        certificates: X.509 certificates in DER format.

    Returns:
        The content of the file. The password is `changeit`; Java can read the file without it.
    """
    body = struct.pack(">III", 0xFEEDFEED, 2, len(certificates))
    for number, certificate in enumerate(certificates):
        body += struct.pack(">I", _TRUSTED) + _text(f"ca-{number}") + struct.pack(">Q", 0)
        body += _text("X.509") + struct.pack(">I", len(certificate)) + certificate
    salted = _PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body  # as the format requires
    return body + hashlib.sha1(salted, usedforsecurity=False).digest()


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">H", len(encoded)) + encoded
