"""Java trusts the CAs of `$SSL_CERT_FILE`, as other programs do, when it downloads jars."""

from __future__ import annotations

import http.server
import shutil
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.certificates import Authority

from hourmark.errors import ConfigError
from hourmark_infra.jars.ivy import read_log_tail, render_dependency, start_ivy
from hourmark_infra.jars.trust_store import trust_store_options

JAVA = shutil.which("java")
CONTENT = b"a jar"


class Repository(http.server.BaseHTTPRequestHandler):
    """Serves one jar."""

    def do_GET(self) -> None:  # the name that the base class calls
        found = self.path == "/org/example/one/1.0/one-1.0.jar"
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(CONTENT) if found else 0))
        self.end_headers()
        if found and self.command == "GET":
            self.wfile.write(CONTENT)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Path]:
    """Ivy settings that name a repository whose certificate is of the CA in `tmp_path/tls`."""
    authority = Authority(tmp_path / "tls")
    pair = authority.issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Repository)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    file = tmp_path / "settings.xml"
    file.write_text(
        '<ivysettings><property name="ivy.checksums" value=""/>'
        '<settings defaultResolver="own"/>'
        f'<resolvers><ibiblio name="own" m2compatible="true" usepoms="false" '
        f'root="https://localhost:{server.server_port}/"/></resolvers></ivysettings>'
    )
    yield file
    server.shutdown()
    server.server_close()


@pytest.mark.skipif(JAVA is None, reason="no java on the PATH")
@pytest.mark.parametrize("trusted", [True, False])
def test_jars_come_from_a_repository_with_a_certificate_of_ones_own_ca(
    settings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    other = Authority(tmp_path / "other").ca
    own = (tmp_path / "tls" / "ca.pem").read_text() if trusted else ""
    bundle = tmp_path / "bundle.pem"
    bundle.write_text(f"# comment\n{other.read_text()}\n{own}")
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    monkeypatch.setenv("HOURMARK_IVY_SETTINGS", str(settings))
    assert JAVA is not None
    wanted = render_dependency("org.example", "one", "1.0", [("jar", "")])
    with start_ivy(Path(JAVA), tmp_path / "ivy", wanted) as process:
        process.wait(120)
    found = [path for path in tmp_path.rglob("*.jar") if path.read_bytes() == CONTENT]
    assert bool(found) == trusted, read_log_tail(tmp_path / "ivy", 40)


def test_without_the_variable_the_trust_of_the_machine_stays(tmp_path: Path) -> None:
    options = trust_store_options({}, tmp_path / "store")
    assert not list(tmp_path.iterdir())
    assert all("/etc/ssl/certs/java/cacerts" in option for option in options)


@pytest.mark.parametrize("content", [None, "", "-----BEGIN CERTIFICATE-----\n?\n"])
def test_a_file_without_certificates_is_named(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError, match=r"SSL_CERT_FILE = '.*ca\.pem'"):
        trust_store_options({"SSL_CERT_FILE": str(file)}, tmp_path / "store")
