"""Certificates and keys in PEM files, and files that are read again when they change."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from pathlib import Path

from hourmark.errors import ConfigError


def load_certificate(
    context: ssl.SSLContext, group: str, certificate: Path, key: Path | None
) -> None:
    """Into the context; ConfigError names the settings `certificate` and `key` of the group."""
    try:
        context.load_cert_chain(certificate, key, password=_no_passphrase)
    except (OSError, ValueError) as error:
        files = f"{group}.certificate = {certificate}, {group}.key = {key or '(in it)'}"
        raise ConfigError(
            f"{files}: {_why(error)}; both must be PEM, readable, and belong together"
        ) from error


def load_ca_certificates(context: ssl.SSLContext, setting: str, file: Path) -> None:
    """Trust these; ConfigError names the setting."""
    try:
        context.load_verify_locations(file)
    except OSError as error:
        raise ConfigError(f"{setting} = {file}: {_why(error)}; give certificates as PEM") from error


class WatchedFiles:
    """Whether files are others than when they were looked at last: written, replaced, linked
    elsewhere, gone or back.
    """

    def __init__(self, files: Iterable[Path | None]) -> None:
        self._files = [file for file in files if file is not None]
        self._seen = self._look()

    def changed(self) -> bool:
        """Since the last call, or since this was made."""
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
