"""Settings: which source wins, what is refused, and that no secret is ever shown."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hourmark.cli import root
from hourmark.config.loading import Config, load_config
from hourmark.config.redaction import HIDDEN, redact_setting
from hourmark.errors import ConfigError

SECRET, NUMBER = "geheim", "12345"


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No variable of ours, and a folder without a configuration."""
    for name in [name for name in os.environ if name.upper().startswith("HOURMARK_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    yield


def said(*arguments: str) -> str:
    done = CliRunner().invoke(root, ["config", "show", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def rows(*arguments: str) -> dict[str, tuple[Any, str, str | None]]:
    """By setting: value, from, where."""
    found = json.loads(said("--json", *arguments))["settings"]
    return {row["setting"]: (row["value"], row["from"], row["where"]) for row in found}


def written(text: str, name: str = "hourmark.toml") -> str:
    Path(name).write_text(text)
    return name


def test_the_environment_wins_over_the_file_and_the_file_over_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = written(
        '[service]\nport = 1\nreport_seconds = 3\n[kafka.edge.properties]\n"client.id" = '
        '"a"\ndebug = "all"\n'
    )
    monkeypatch.setenv("HOURMARK_SERVICE__PORT", "2")
    monkeypatch.setenv("HOURMARK_KAFKA", '{"edge": {"properties": {"debug": "none"}}}')
    found = rows()
    assert found["service.port"] == (2, "environment", "HOURMARK_SERVICE__PORT")
    assert found["service.report_seconds"] == (3.0, "file", file)
    assert found["service.line_bytes_max"] == (4 << 20, "default", None)
    assert found['kafka.edge.properties."client.id"'] == ("a", "file", file)
    assert found["kafka.edge.properties.debug"] == ("none", "environment", "HOURMARK_KAFKA")


def test_a_variable_of_a_setting_wins_over_one_of_its_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOURMARK_SERVICE", '{"port": 1, "report_seconds": 5}')
    monkeypatch.setenv("HOURMARK_SERVICE__PORT", "2")
    found = rows()
    assert found["service.port"] == (2, "environment", "HOURMARK_SERVICE__PORT")
    assert found["service.report_seconds"] == (5.0, "environment", "HOURMARK_SERVICE")


def test_the_file_is_the_named_one_else_that_of_the_variable_else_the_folders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written("service.port = 1\n")
    assert rows()["service.port"] == (1, "file", "hourmark.toml")
    monkeypatch.setenv("HOURMARK_CONFIG", written("service.port = 2\n", "other.toml"))
    assert rows()["service.port"] == (2, "file", "other.toml")
    named = written("service.port = 3\n", "named.toml")
    assert rows("--config", named)["service.port"] == (3, "file", named)


def test_every_setting_is_shown_once_with_the_value_in_force() -> None:
    found = rows()
    dumped = Config().model_dump(mode="json")
    assert found["parsing.bucket_seconds"] == (3600, "default", None)
    for setting, (value, source, where) in found.items():
        inner: Any = dumped
        for key in setting.split("."):
            inner = inner[key]
        assert (value, source, where) == (inner, "default", None)
    text = said().splitlines()
    assert [line.split(" = ")[0] for line in text[1:]] == list(found)
    assert (
        "service.port = 8780  # default" in text and "kafka.central = (absent)  # default" in text
    )


SECRETS = f"""
[registry]
url = "https://me:{SECRET}@host:1/path"
[etl]
ledger = "postgresql://me:{SECRET}/w@{SECRET}@host/db?sslpassword={SECRET}"
[etl.spark_conf]
"spark.ssl.keyPassword" = "{SECRET}"
"spark.hadoop.fs.s3a.access.key" = "{SECRET}"
"spark.driver.extraJavaOptions" = "-Xmx1g -Djavax.net.ssl.trustStorePassword={SECRET}"
"spark.driver.memory" = "1g"
[kafka.central.properties]
"sasl.password" = "{SECRET}"
"sasl.oauthbearer.client.secret" = "{SECRET}"
"ssl.key.pem" = "{SECRET}"
"security.protocol" = "SASL_SSL"
"sasl.mechanism" = "PLAIN"
[tailer]
service_urls = ["https://{SECRET}@one", "https://two"]
[[tailer.sources]]
name = "app"
paths = ["/var/log/app@1.log"]
"""


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_secrets_are_hidden_in_both_outputs(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    written(SECRETS)
    monkeypatch.setenv(
        "HOURMARK_KAFKA__EDGE__PROPERTIES",
        json.dumps({"sasl.jaas.config": f'user="a" password="{SECRET}"'}),
    )
    text = said(*arguments)
    assert SECRET not in text
    assert text.count(HIDDEN) == 11


def test_what_is_no_secret_is_shown_beside_those_that_are() -> None:
    written(SECRETS)
    values = {setting: value for setting, (value, _, _) in rows().items()}
    assert values["registry.url"] == "https://(hidden)@host:1/path"
    assert values["etl.ledger"] == "postgresql://(hidden)@host/db?(hidden)"
    assert values["tailer.service_urls"] == ["https://(hidden)@one", "https://two"]
    (source,) = values["tailer.sources"]
    assert [source[name] for name in ("name", "paths", "zone")] == [
        "app",
        ["/var/log/app@1.log"],
        "UTC",
    ]
    assert values['kafka.central.properties."security.protocol"'] == "SASL_SSL"
    assert values['kafka.central.properties."sasl.mechanism"'] == "PLAIN"
    assert values['etl.spark_conf."spark.driver.memory"'] == "1g"


def test_secrets_within_maps_and_lists_of_maps_are_hidden() -> None:
    nested = {"a": [{"password": SECRET, "url": f"http://x:{SECRET}@h"}], "key": {"b": SECRET}}
    assert redact_setting(nested) == {
        "a": [{"password": HIDDEN, "url": f"http://{HIDDEN}@h"}],
        "key": HIDDEN,
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (f"//u:{SECRET}@h/x", "(hidden)@h/x"),
        (f"u:{SECRET}@h", "(hidden)@h"),
        (f"SASL_SSL://a:{SECRET}@b, SASL_SSL://c:{SECRET}@d", "SASL_SSL://(hidden)@d"),
        (f"host=h user=u password={SECRET}", "(hidden)"),
        (f'{{"token": "{SECRET}"}}', "(hidden)"),
        ("/jars/auth-token-1.jar:/jars/b@2.jar", "/jars/auth-token-1.jar:/jars/b@2.jar"),
        ("spark://host:7077", "spark://host:7077"),
        ("sqlite:////srv/etl@site/ledger.db", "sqlite:////srv/etl@site/ledger.db"),
        ("", ""),
    ],
)
def test_a_secret_is_hidden_wherever_it_stands_in_a_text(value: str, expected: str) -> None:
    assert redact_setting(value) == expected


@pytest.mark.parametrize(
    "text",
    [
        f'[etl]\nledgr = "postgresql://u:{SECRET}@h/d"',
        f'[etl]\ndatabase = {{ pw = "{SECRET}" }}',
        f'service = "{SECRET} of u:{SECRET}@h"',
        f'[registry]\nurl = ["https://u:{SECRET}@h"]',
        f'[storage]\nroot = "ftp://u:{SECRET}@h/d"',
        f'[kafka.edge.properties]\n"sasl.password" = ["{SECRET}"]',
        f'[kafka.edge.properties]\n"sasl.password" = {NUMBER}',
    ],
)
def test_no_error_shows_a_secret_or_keeps_one_as_its_cause(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(Path(written(text)))
    assert SECRET not in str(caught.value) and NUMBER not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        (
            "[service]\nprot = 1",
            (
                r"hourmark\.toml(.|\n)*service\.prot: unknown setting; see docs/reference/configuration\.md "
                r"for all settings"
            ),
        ),
        ("[service]\nport = 99999", r"service\.port = 99999"),
        ('[service]\nhost = "0.0.0.0"', "accepts connections from other machines"),
        ("[parsing]\nbucket_seconds = 7", "whole minutes"),
        ("[", "not valid TOML"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(text: str, refused: str) -> None:
    written(text)
    with pytest.raises(ConfigError, match=refused):
        said()


@pytest.mark.parametrize("name", ["HOURMARK_SERVICE__PROT", "hourmark_servce__port"])
def test_an_unknown_setting_in_a_variable_is_refused_by_name(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "1")
    with pytest.raises(
        ConfigError,
        match=r"service\.prot: unknown setting|hourmark_servce__port: unknown group of settings 'servce'",
    ):
        said()


def test_a_table_in_a_variable_that_is_no_json_is_told_with_an_example(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOURMARK_KAFKA__EDGE__PROPERTIES", f"sasl.password={SECRET}")
    with pytest.raises(
        ConfigError,
        match=r"HOURMARK_KAFKA… does not contain valid JSON; .*HOURMARK_TAILER__SERVICE_URLS=",
    ):
        said()


def test_a_wrong_value_is_named_with_what_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOURMARK_PARSING__BUCKET_SECONDS", "7")
    with pytest.raises(
        ConfigError,
        match=r"parsing\.bucket_seconds = '7': .*allowed: 3600, or, for tests, whole minutes",
    ):
        said()


def test_files_that_s3_cannot_copy_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "hourmark.toml"
    file.write_text(f"[etl]\ntarget_file_bytes = {5 << 30}\n")
    assert load_config(file).etl.target_file_bytes == 5 << 30
    file.write_text(f'{file.read_text()}[storage]\nroot = "s3://bucket"\n')
    with pytest.raises(ConfigError, match=r"\n  etl.target_file_bytes is 5368709120, but .* S3"):
        load_config(file)
