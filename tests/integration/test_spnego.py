"""Negotiate headers from a real KDC, accepted by a server with a keytab.

Needs the programs of krb5-kdc, krb5-admin-server and krb5-user (Debian), and the extra
`hourmark-etl[kerberos]`.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from tests.support.kdc import REALM, Kdc, missing_programs

from hourmark.errors import ConfigError
from hourmark_etl.storage.spnego import NegotiationFailed, check_login, negotiate_header

gssapi = pytest.importorskip("gssapi")
pytestmark = [
    pytest.mark.stack,
    pytest.mark.skipif(bool(missing_programs()), reason=f"not installed: {missing_programs()}"),
]
PRINCIPAL: Final = f"hourmark@{REALM}"
HOST: Final = "127.0.0.1"


class Realm(NamedTuple):
    kdc: Kdc
    client: Path  # keytab
    server: Path  # keytab

    def accepts(self, header: str) -> str:
        """The principal that the server finds in the header."""
        store = {"keytab": f"FILE:{self.server}"}
        credentials = gssapi.Credentials(usage="accept", store=store)
        context = gssapi.SecurityContext(creds=credentials, usage="accept")
        context.step(base64.b64decode(header.removeprefix("Negotiate ")))
        assert context.complete
        return str(context.initiator_name)


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with pytest.MonkeyPatch.context() as patch, Kdc(tmp_path_factory.mktemp("kdc")) as kdc:
        patch.setitem(os.environ, "KRB5_CONFIG", kdc.environment["KRB5_CONFIG"])
        yield Realm(kdc, kdc.keytab("hourmark"), kdc.keytab(f"HTTP/{HOST}"))


def test_a_server_accepts_the_header_once(realm: Realm) -> None:
    headers = {negotiate_header(HOST, PRINCIPAL, realm.client) for _ in range(3)}
    assert [realm.accepts(header) for header in headers] == [PRINCIPAL] * 3


def test_each_header_has_a_new_ticket(realm: Realm) -> None:
    assert realm.accepts(negotiate_header(HOST, PRINCIPAL, realm.client)) == PRINCIPAL
    realm.kdc.stop()
    with pytest.raises(NegotiationFailed, match="Cannot contact any KDC"):
        negotiate_header(HOST, PRINCIPAL, realm.client)
    realm.kdc.start()
    assert realm.accepts(negotiate_header(HOST, PRINCIPAL, realm.client)) == PRINCIPAL


def test_a_replaced_keytab_is_used_without_a_restart(realm: Realm, tmp_path: Path) -> None:
    keytab, principal = tmp_path / "keytab", f"replaced@{REALM}"
    keytab.write_bytes(realm.kdc.keytab("replaced").read_bytes())
    assert realm.accepts(negotiate_header(HOST, principal, keytab)) == principal
    keytab.unlink()
    with pytest.raises(NegotiationFailed, match=r"the keytab cannot be read \(No such file"):
        negotiate_header(HOST, principal, keytab)
    keytab.write_bytes(b"")
    with pytest.raises(NegotiationFailed, match="the keytab has no key of replaced@"):
        negotiate_header(HOST, principal, keytab)
    keytab.write_bytes(realm.kdc.keytab("replaced").read_bytes())  # a new key
    assert realm.accepts(negotiate_header(HOST, principal, keytab)) == principal


def test_a_principal_that_the_keytab_does_not_have_is_named(realm: Realm) -> None:
    with pytest.raises(NegotiationFailed, match=f"the keytab has no key of other@{REALM}"):
        negotiate_header(HOST, f"other@{REALM}", realm.client)
    check_login(PRINCIPAL, realm.client)
    with pytest.raises(
        ConfigError, match=rf"storage\.keytab = .*storage\.principal = other@{REALM}"
    ):
        check_login(f"other@{REALM}", realm.client)


def test_a_ticket_cache_is_used_without_a_keytab(
    realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    realm.kdc.kinit("operator", realm.kdc.keytab("operator"))
    monkeypatch.setenv("KRB5CCNAME", realm.kdc.environment["KRB5CCNAME"])
    assert realm.accepts(negotiate_header(HOST, f"operator@{REALM}", None)) == f"operator@{REALM}"
    with pytest.raises(NegotiationFailed, match="other"):
        negotiate_header(HOST, f"other@{REALM}", None)


@pytest.mark.parametrize("name", ["unknown", "rotated"])
def test_a_login_that_the_kdc_refuses_names_the_reason(
    realm: Realm, tmp_path: Path, name: str
) -> None:
    keytab = tmp_path / "keytab"
    keytab.write_bytes(realm.kdc.keytab(name).read_bytes())
    if name == "unknown":
        realm.kdc.delete(name)
    else:
        realm.kdc.keytab(name)  # a new key
    reason = {
        "unknown": "not found in Kerberos database",
        "rotated": "Decrypt integrity check failed",
    }
    with pytest.raises(NegotiationFailed, match=reason[name]):
        negotiate_header(HOST, f"{name}@{REALM}", keytab)
