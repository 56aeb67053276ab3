"""Certificates and keys from PEM files, and detection of changed files."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from pathlib import Path

from hourmark.errors import ConfigError


def load_certificate(
    context: ssl.SSLContext, group: str, certificate: Path, key: Path | None
) -> None:
    """Load a certificate and its private key into a TLS context.

    Args:
        context: The context.
        group: Name of the settings group, such as `service.tls`, for error messages.
        certificate: PEM file with the certificate and its intermediate certificates.
        key: PEM file with the key; None if it is in the same file.

    Raises:
        ConfigError: A file cannot be read, the key does not match the certificate, or the key has a
            passphrase.
    """
    try:
        context.load_cert_chain(certificate, key, password=_no_passphrase)
    except (OSError, ValueError) as error:
        files = f"{group}.certificate = {certificate}, {group}.key = {key or '(in it)'}"
        raise ConfigError(
            f"{files}: {_why(error)}; both must be readable PEM files, and the key must match "
            "the certificate"
        ) from error


def load_ca_certificates(context: ssl.SSLContext, setting: str, file: Path) -> None:
    """Make a TLS context trust the CA certificates in a PEM file.

    Args:
        context: The context.
        setting: Dotted name of the setting, for error messages.
        file: The PEM file.

    Raises:
        ConfigError: The file cannot be read or contains no certificates.
    """
    try:
        context.load_verify_locations(file)
    except OSError as error:
        raise ConfigError(
            f"{setting} = {file}: {_why(error)}; the file must contain certificates in PEM format"
        ) from error


class WatchedFiles:
    """A set of files that can be polled for changes, such as TLS certificates.

    A file has changed if it was created or removed, or if its modification time, inode or size is
    different.

    Args:
        files: Paths of the files. None values are ignored.
    """

    def __init__(self, files: Iterable[Path | None]) -> None:
        self._files = [file for file in files if file is not None]
        self._seen = self._look()

    def changed(self) -> bool:
        """Return whether any of the files has changed since the previous call.

        The first call compares the files with their state at construction. A file that cannot be
        accessed is treated as missing.
        """
        before, self._seen = self._seen, self._look()
        return before != self._seen

    def _look(self) -> list[tuple[int, int, int] | None]:
        return [_mark(file) for file in self._files]


def _mark(file: Path) -> tuple[int, int, int] | None:
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino, stat.st_size


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase")


def _why(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
