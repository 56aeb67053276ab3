"""Secrets stand in files or variables, and come out nowhere: planted everywhere, and searched for
in all that is said.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import ssl
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.certificates import Authority, Pair
from tests.support.http_server import Answering, serving

from hourmark.avro.registry import SchemaRegistry
from hourmark.commands.config_show import config_group
from hourmark.config.groups import RegistrySettings
from hourmark.config.loading import Config, load_config
from hourmark.errors import ConfigError, Unavailable
from hourmark.kafka.clients import Cluster, client_settings
from hourmark_mirror.run.process import prepare_command

SECRET = "pl4nted-s3cret"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration with the secret in every place that takes one, by file and by variable."""
    kept = tmp_path / "secret"
    kept.write_text(SECRET + "\n")
    monkeypatch.setenv("PLANTED", SECRET)
    monkeypatch.setenv(
        "HOURMARK_ETL__SPARK_CONF", json.dumps({"spark.ssl.keyPassword": f"${{file:{kept}}}"})
    )
    config = tmp_path / "hourmark.toml"
    config.write_text(f"""
[registry]
url = "https://me:${{env:PLANTED}}@127.0.0.1:1"
[etl]
ledger = "postgresql://me:${{file:{kept}}}@127.0.0.1:1/x"
[mirror]
work_dir = "{tmp_path}/mirror"
[kafka.edge]
bootstrap = "127.0.0.1:1"
[kafka.edge.properties]
"security.protocol" = "SASL_PLAINTEXT"
"sasl.mechanism" = "SCRAM-SHA-512"
"sasl.username" = "me"
"sasl.password" = "${{file:{kept}}}"
[kafka.central]
bootstrap = "127.0.0.1:1"
[kafka.central.properties]
"security.protocol" = "SASL_PLAINTEXT"
"sasl.mechanism" = "SCRAM-SHA-512"
"sasl.username" = "me"
"sasl.password" = "${{env:PLANTED}}"
""")
    return config


def test_what_is_referred_to_is_what_servers_are_given(file: Path) -> None:
    config = load_config(file)
    assert config.registry.url == f"https://me:{SECRET}@127.0.0.1:1"
    assert config.etl.ledger == f"postgresql://me:{SECRET}@127.0.0.1:1/x"
    assert config.etl.spark_conf == {"spark.ssl.keyPassword": SECRET}
    for cluster in (config.kafka.edge, config.kafka.central_cluster):
        assert client_settings(cluster)["sasl.password"] == SECRET


def test_nothing_that_is_said_holds_it(
    file: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config(file)
    said = [
        repr(config),
        str(config),
        f"{config.kafka}",
        repr(config.kafka.edge),
        repr(config.registry),
        repr([config.etl]),
    ]
    for arguments in (["show"], ["show", "--json"]):
        result = CliRunner().invoke(config_group, [*arguments, "--config", str(file)])
        assert result.exit_code == 0 and "(hidden)" in result.output
        said.append(result.output)
    with caplog.at_level(logging.DEBUG):
        monkeypatch.setattr("hourmark.kafka.clients.TIMEOUT_S", 0.5)
        with pytest.raises(Unavailable) as silent:
            Cluster(config.kafka.edge, "edge").names()
        with pytest.raises(Unavailable) as closed:
            SchemaRegistry(config.registry).schema(1)
        said += [str(silent.value), str(closed.value), *prepare_command(config)]
    settings = config.mirror.work_dir / "mm2-secrets.properties"
    assert SECRET not in settings.with_name("mm2.properties").read_text()
    assert SECRET in settings.read_text() and stat.S_IMODE(settings.stat().st_mode) == 0o600, (
        "its process alone reads it"
    )
    assert SECRET not in caplog.text
    assert [text for text in said if SECRET in text] == []


def test_a_wrong_setting_does_not_show_what_it_refers_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED", SECRET)
    file = tmp_path / "hourmark.toml"
    for text in (
        '[service]\nport = "${env:PLANTED}"',
        '[storage]\nroot = "x${env:PLANTED}"',
        '[kafka]\nedge = "${env:PLANTED}"',
    ):
        file.write_text(text)
        with pytest.raises(ConfigError) as wrong:
            load_config(file)
        assert SECRET not in str(wrong.value) and "hidden" in str(wrong.value)


def test_a_reference_to_nothing_names_the_setting(tmp_path: Path) -> None:
    file, empty, binary = tmp_path / "hourmark.toml", tmp_path / "empty", tmp_path / "binary"
    empty.write_text("\n")
    binary.write_bytes(b"\xff\xfe")
    for reference, why in (
        ("${env:NO_SUCH_VARIABLE}", "the environment variable NO_SUCH_VARIABLE is not set"),
        ("${file:relative}", "not absolute"),
        (f"${{file:{tmp_path}/none}}", "No such file"),
        (f"${{file:{empty}}}", "1 to"),
        (f"${{file:{binary}}}", "UTF-8"),
        ("${file:/dev/zero}", "1 to"),
    ):
        file.write_text(f"[registry]\nurl = 'https://me:{reference}@host'")
        with pytest.raises(ConfigError) as wrong:
            load_config(file)
        assert str(wrong.value).startswith(f"registry.url = {reference}: ") and why in str(
            wrong.value
        )
    file.write_text("[registry]\nurl = 'https://$HOME/${other:x}/${}'")
    assert load_config(file).registry.url == "https://$HOME/${other:x}/${}", (
        "nothing else is read into a text"
    )
    assert Config().registry.ca is None


class _Guarded(Answering):
    """A registry that wants a user and a password."""

    def do_GET(self) -> None:
        wanted = "Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()
        if self.headers["Authorization"] != wanted:
            self.answer(401, b'{"error_code": 401, "message": "who?"}')
        else:
            self.answer(200, b'{"schema": "\\"long\\""}')


def _tls(authority: Authority, pair: Pair) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    context.load_verify_locations(authority.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


@pytest.mark.slow
def test_a_registry_is_asked_over_tls_with_a_certificate_and_a_password(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    mine = authority.issue("client")
    with serving(_Guarded, _tls(authority, authority.issue("registry"))) as address:

        def ask(url: str, **files: Path) -> object:
            registry = SchemaRegistry(RegistrySettings(url=url.format(address), **files))
            try:
                return registry.schema(1)
            finally:
                registry.close()

        shown = {"ca": authority.ca, "certificate": mine.certificate, "key": mine.key}
        assert ask(f"https://me:{SECRET}@{{}}", **shown) == "long"
        with pytest.raises(Unavailable, match="401"):
            ask("https://me:wrong@{}", **shown)
        with pytest.raises(Unavailable, match="certificate verify failed"):
            ask("https://{}")
        with pytest.raises(Unavailable, match="did not respond"):
            ask(f"https://me:{SECRET}@{{}}", ca=authority.ca)
    with pytest.raises(ConfigError, match=r"registry\.ca"):
        SchemaRegistry(RegistrySettings(url="https://x", ca=mine.key))
    assert os.environ.get("SSL_CERT_FILE") != str(authority.ca)
