"""Certificates of a CA that lives as long as a test."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import NamedTuple

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)


class Pair(NamedTuple):
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """A CA in a folder. `ca`: its certificate as a PEM file."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._ca = trustme.CA()
        self.ca = folder / "ca.pem"
        self._ca.cert_pem.write_to_path(self.ca)

    def issue(self, name: str, *hosts: str, until: dt.datetime | None = None) -> Pair:
        """A pair for these host names and addresses, in files of that name; files that are there
        are written anew. It is valid for years, or until that time.
        """
        identities = hosts or ("localhost", "127.0.0.1")
        issued = self._ca.issue_cert(*identities, common_name=name, not_after=until)
        pair = Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        pair.certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        pair.key.write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )  # Java reads no other form
        return pair
