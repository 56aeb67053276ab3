"""No command shows a secret of any setting, mistyped or not: not in output, logs, errors or
tracebacks.
"""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.support.planted_secrets import (
    ENTRIES,
    LEFT,
    RIGHT,
    SCHEMES,
    URLS,
    Leaf,
    leaks,
    leaves,
    passwords,
    settings_with,
    shown_by,
    toml_file,
)

from hourmark.avro.registry import SchemaRegistry
from hourmark.cli import main
from hourmark.config.groups import RegistrySettings
from hourmark.config.loading import Config, build_config, load_config
from hourmark.config.redaction import (
    add_secret,
    add_secrets_of,
    forget_secrets,
    install_redaction,
    redact,
)
from hourmark.errors import ConfigError
from hourmark.log import set_up_logging

LEAVES: Final = tuple(leaves())
QUICK: Final[Sequence[Sequence[str]]] = (
    ("config", "show"),
    ("config", "show", "--json"),
    ("types", "check"),
    ("tail", "--check"),
    ("tail", "status"),
)
ASKING: Final[Mapping[str, Sequence[Sequence[str]]]] = {
    "registry": (("doctor", "--only", "registry", "--json"),),
    "etl": (("ledger", "check"), ("doctor", "--only", "ledger"), ("types", "apply")),
    "storage": (("doctor", "--only", "storage"),),
    "kafka": (("doctor", "--only", "kafka"),),
    "tailer": (("doctor", "--only", "services"),),
}
MISTYPED: Final[Sequence[tuple[str, str]]] = (
    ("registry.url", f"htps://hourmark:{LEFT}{RIGHT}@registry.example"),
    ("registry.url", f"http://hourmark:{LEFT}/{RIGHT}+x==@127.0.0.1:1/"),
    ("registry.url", f"http://hourmark:{LEFT}@{RIGHT}@127.0.0.1:1/"),
    ("registry.url", f"http://hourmark:{LEFT}{RIGHT}"),
    ("etl.ledger", f"postgresql://hourmark:{LEFT}@{RIGHT}@127.0.0.1:1/x"),
    ("etl.ledger", f"postgresql://hourmark:{LEFT}/{RIGHT}"),
    ("etl.ledger", f"postgresql://hourmark:{LEFT}{RIGHT}@127.0.0.1:port/x"),
    ("storage.webhdfs", f"http://hourmark:{LEFT}/{RIGHT}@127.0.0.1:1/"),
    ("storage.webhdfs", f"htp://hourmark:{LEFT}{RIGHT}@127.0.0.1:1/"),
    ("kafka.edge.bootstrap", f"SASL_SSL://hourmark:{LEFT}{RIGHT}@127.0.0.1:1"),
    ("tailer.service_urls.0", f"http://hourmark:{LEFT}/{RIGHT}@127.0.0.1:1"),
)


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder without any configuration; logging and hooks are put back at the end."""
    for name in [name for name in os.environ if name.startswith("HOURMARK_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "types").mkdir()
    (tmp_path / "app.log").write_text("a line\n")
    monkeypatch.setattr("hourmark.kafka.clients.TIMEOUT_S", 0.2)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    kept, level = logging.getLogger().handlers[:], logging.getLogger().level
    yield
    logging.getLogger().handlers[:] = kept
    logging.getLogger().setLevel(level)


@pytest.fixture(scope="module")
def taken() -> Iterator[int]:
    """A port on which a service cannot listen, so that it ends at once."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def base(folder: Path, port: int) -> dict[str, Any]:
    """Settings with which every command ends at once, because no server is there."""
    closed = "127.0.0.1:1"
    return {
        "kafka": {"edge": {"bootstrap": closed}, "central": {"bootstrap": closed}},
        "registry": {"url": f"http://{closed}"},
        "service": {"state_dir": str(folder / "service"), "port": port, "host": "127.0.0.1"},
        "tailer": {
            "state_dir": str(folder / "tailer"),
            "service_urls": [f"http://{closed}"],
            "sources": [{"name": "app", "paths": [str(folder / "app.log")]}],
        },
        "mirror": {"work_dir": str(folder / "mirror"), "java": "/nonexistent/java"},
        "storage": {"root": f"hdfs://{closed}/x", "webhdfs": f"http://{closed}"},
        "etl": {
            "ledger": f"sqlite:///{folder}/ledger.sqlite",
            "scratch_dir": str(folder / "scratch"),
        },
        "types": {"dir": str(folder / "types")},
    }


def run(arguments: Sequence[str], config: dict[str, Any], folder: Path) -> str:
    """All that the command prints in this process, which knows no secrets yet."""
    forget_secrets()
    file = folder / "planted.toml"
    file.write_text(toml_file(config))
    kept = sys.argv
    sys.argv = ["hourmark", *arguments, "--config", str(file)]
    try:
        return shown_by(main)
    finally:
        sys.argv = kept


def of(name: str) -> Leaf:
    return next(leaf for leaf in LEAVES if str(leaf) == name)


def test_every_setting_that_takes_text_is_tried() -> None:
    names = {str(leaf) for leaf in LEAVES}
    assert names >= {
        "registry.url",
        "registry.key",
        "etl.ledger",
        "etl.spark_conf",
        "storage.root",
        "storage.webhdfs",
        "tailer.service_urls.0",
        "kafka.edge.properties",
        "kafka.central.properties",
        "kafka.further_edges.other.properties",
        "kafka.edge.bootstrap",
        "tailer.sources.0.input",
        "tailer.sources.0.fields",
        "tailer.token_file",
        "mirror.java",
    }
    assert all(
        leaf.is_table == str(leaf).endswith(("properties", "spark_conf", "fields"))
        for leaf in LEAVES
    )


def _prints() -> None:
    print(f"Invalid url http://u:{LEFT}@h")


def _logs() -> None:
    logging.StreamHandler(sys.stderr).emit(
        logging.makeLogRecord({"msg": f"port {RIGHT.upper()} is none"})
    )


def _raises() -> None:
    raise ValueError(f"could not convert {RIGHT}")


@pytest.mark.parametrize("leak", [_prints, _logs, _raises])
def test_a_planted_leak_is_found(leak: Any) -> None:
    assert leaks(shown_by(leak))


def test_without_the_registry_of_secrets_a_command_leaks(
    tmp_path: Path, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = f"http://hourmark:{LEFT}/{RIGHT}@127.0.0.1:1/"
    config = settings_with(of("registry.url"), value, base(tmp_path, taken))
    asked = ["doctor", "--only", "registry"]
    assert leaks(run(asked, config, tmp_path)) == []
    monkeypatch.setattr("hourmark.config.loading.add_secrets_of", lambda _: None)
    assert leaks(run(asked, config, tmp_path))


def planted_urls() -> Sequence[str]:
    """Every planted password in every mistyped URL."""
    texts: list[str] = []
    for password, url in itertools.product(passwords(), URLS):
        is_option = "?" in url
        ends = (
            "&" if is_option else "@" if url.endswith("{password}") else None
        )  # what follows is no part of the password
        if ends is None or ends not in password:
            texts.extend(
                url.format(scheme=scheme, user="hourmark", password=password) for scheme in SCHEMES
            )
    return texts


def planted_entries() -> Sequence[Mapping[str, str]]:
    """Every planted password in every entry of a table."""
    return [
        {name: ENTRIES[name].format(password=password)}
        for name in ENTRIES
        for password in passwords()
    ]


@st.composite
def plantings(draw: st.DrawFn) -> tuple[Leaf, object]:
    leaf = draw(st.sampled_from(LEAVES))
    text = draw(st.sampled_from(planted_urls()))
    if not leaf.is_table:
        return leaf, text
    entry = draw(st.sampled_from((*planted_entries(), {"sasl.password": text})))
    ((name, value),) = entry.items()
    return leaf, {name: draw(st.sampled_from((value, [value], {"nested": value})))}


@given(planted=plantings(), arguments=st.sampled_from(QUICK))
@example(
    planted=(
        of("kafka.edge.bootstrap"),
        f"http://127.0.0.1:1/path?user=hourmark&password={LEFT}@{RIGHT}",
    ),
    arguments=("config", "show"),
)
@example(
    planted=(of("registry.url"), f"http://hourmark:{LEFT}/{RIGHT}@127.0.0.1:1/"), arguments=QUICK[0]
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_planted_secret_is_shown_by_no_command(
    planted: tuple[Leaf, object], arguments: Sequence[str], tmp_path: Path, taken: int
) -> None:
    leaf, value = planted
    shown = run(arguments, settings_with(leaf, value, base(tmp_path, taken)), tmp_path)
    assert leaks(shown) == []
    assert "Traceback" not in shown


def shown_when_quoted(leaf: Leaf, value: object) -> list[str]:
    """The errors of a library or of Python that quote this value and show a part of its secret once
    the settings are read.
    """
    forget_secrets()
    add_secrets_of(settings_with(leaf, value, {}))
    quoted = (str(value), f"int({value!r})", f"https://{value}")
    return [error for error in quoted if leaks(redact(error))]


@pytest.mark.slow
def test_no_error_that_quotes_a_planted_secret_shows_it() -> None:
    url, table = of("registry.url"), of("etl.spark_conf")
    complete = [text for text in planted_urls() if "://" in text]
    assert [text for text in complete if shown_when_quoted(url, text)] == []
    assert [
        text for text in planted_urls() if shown_when_quoted(table, {"spark.hadoop.x": text})
    ] == []
    assert [entry for entry in planted_entries() if shown_when_quoted(table, entry)] == []


@pytest.mark.slow
@pytest.mark.parametrize("leaf", LEAVES, ids=str)
def test_no_error_that_quotes_a_secret_of_any_setting_shows_it(leaf: Leaf) -> None:
    texts = [text for text in planted_urls() if "://" in text][:: len(SCHEMES)]
    assert [
        text for text in texts if shown_when_quoted(leaf, {"a": text} if leaf.is_table else text)
    ] == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "value"), MISTYPED)
def test_a_mistyped_url_is_shown_by_no_quick_command(
    name: str, value: str, tmp_path: Path, taken: int
) -> None:
    config = settings_with(of(name), value, base(tmp_path, taken))
    for arguments in QUICK:
        shown = run(arguments, config, tmp_path)
        assert (leaks(shown), "Traceback" in shown) == ([], False), arguments


@pytest.mark.parametrize(("name", "value"), MISTYPED)
def test_a_mistyped_url_is_shown_by_no_command_that_asks_servers(
    name: str, value: str, tmp_path: Path, taken: int
) -> None:
    config = settings_with(of(name), value, base(tmp_path, taken))
    for arguments in ASKING[name.partition(".")[0]]:
        shown = run(arguments, config, tmp_path)
        assert (leaks(shown), "Traceback" in shown) == ([], False), arguments


@pytest.mark.slow
@pytest.mark.parametrize("component", [("serve",), ("mirror", "run"), ("tail",), ("etl", "run")])
def test_a_component_that_fails_at_its_start_shows_no_secret(
    component: Sequence[str], tmp_path: Path, taken: int
) -> None:
    config = base(tmp_path, taken)
    config["kafka"]["edge"] = {"bootstrap": f"SASL_SSL://hourmark:{LEFT}/{RIGHT}@127.0.0.1:1"}
    config["tailer"]["service_urls"] = [f"htp://hourmark:{LEFT}/{RIGHT}@127.0.0.1:1"]
    config["etl"]["ledger"] = f"postgresql://hourmark:{LEFT}{RIGHT}@127.0.0.1:port/x"
    file = tmp_path / "planted.toml"
    file.write_text(toml_file(config))
    command = [sys.executable, "-m", "hourmark", *component, "--config", str(file)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode != 0
    assert (leaks(done.stdout + done.stderr), "Traceback" in done.stderr) == ([], False)


@pytest.mark.parametrize("value", [value for name, value in MISTYPED if name == "registry.url"][:2])
def test_a_registry_url_that_cannot_be_used_is_refused_with_the_next_step(value: str) -> None:
    settings = build_config(None, {"registry": {"url": value}}).registry
    with pytest.raises(
        ConfigError, match=r"registry\.url.* is not valid.* allowed: http://host:port"
    ) as refused:
        SchemaRegistry(settings).schema(1)
    assert leaks(redact(str(refused.value))) == []


@pytest.mark.parametrize(
    ("group", "name", "value"),
    [
        ("registry", "url", "http://user:pass@word@127.0.0.1:1, http://127.0.0.1:2"),
        ("etl", "ledger", "postgresql://user:p/a@b@host/database"),
        ("storage", "webhdfs", "http://user:a b@127.0.0.1:1"),
    ],
)
def test_settings_with_unescaped_characters_are_accepted(group: str, name: str, value: str) -> None:
    assert getattr(getattr(build_config(None, {group: {name: value}}), group), name) == value


def test_a_log_line_and_its_traceback_show_no_secret(capfd: pytest.CaptureFixture[str]) -> None:
    add_secrets_of({"registry": {"url": f"http://hourmark:{LEFT}/{RIGHT}@127.0.0.1:1"}})
    set_up_logging("INFO")
    try:
        raise ValueError(f"invalid port: {LEFT!r}")
    except ValueError:
        logging.getLogger("hourmark").exception(
            "no connection to http://one:two@host and %s", RIGHT
        )
    shown = capfd.readouterr().err
    assert leaks(shown) == []
    assert "http://(hidden)@host and (hidden)" in shown and "invalid port: '(hidden)'" in shown


def test_tracebacks_that_python_prints_show_no_secret(capfd: pytest.CaptureFixture[str]) -> None:
    add_secret(LEFT + RIGHT)
    install_redaction()

    def fail() -> None:
        raise ValueError(f"refused: {LEFT}{RIGHT}")

    failing = threading.Thread(target=fail, name="failing")
    failing.start()
    failing.join()
    in_thread = capfd.readouterr().err
    shown_by(fail)
    logging.lastResort.emit(logging.makeLogRecord({"msg": f"unread: {LEFT}{RIGHT}"}))  # type: ignore[union-attr]
    assert (
        in_thread.startswith("Exception in thread failing:\n")
        and "ValueError: refused: (hidden)" in in_thread
    )
    assert "ValueError: refused: (hidden)" in shown_by(fail)
    assert capfd.readouterr().err == "unread: (hidden)\n"


def test_wrong_arguments_of_a_command_are_shown_without_their_passwords() -> None:
    kept, sys.argv = sys.argv, ["hourmark", "config", "show", f"postgresql://me:{LEFT}@host/x"]
    try:
        shown = shown_by(main)
    finally:
        sys.argv = kept
    assert "postgresql://(hidden)@host/x" in shown and leaks(shown) == []


def test_a_process_that_unpickles_the_settings_knows_their_secrets() -> None:
    pickled = pickle.dumps(Config(registry={"url": f"http://me:{LEFT}{RIGHT}@host"}))
    forget_secrets()
    assert leaks(redact(LEFT + RIGHT))
    pickle.loads(pickled)
    assert redact(LEFT + RIGHT) == "(hidden)"


def test_data_on_stdout_is_not_altered(capfd: pytest.CaptureFixture[str]) -> None:
    add_secret(LEFT + RIGHT)
    set_up_logging("info")
    line = f"GET http://u:{LEFT}{RIGHT}@host"
    print(line)
    assert capfd.readouterr().out == f"{line}\n"


def test_the_token_of_a_tailer_is_redacted_once_it_is_read(tmp_path: Path, taken: int) -> None:
    token = f"hm_{LEFT}{RIGHT}"
    (tmp_path / "token").write_text(token)
    config = base(tmp_path, taken)
    config["tailer"]["token_file"] = str(tmp_path / "token")
    run(["tail", "--check"], config, tmp_path)
    assert redact(f"refused: Bearer {token}") == "refused: Bearer (hidden)"


@pytest.mark.parametrize(
    "text",
    [
        "allowed: postgresql://user:password@host/database",
        "run `hourmark doctor`; allowed: https://user:password@host",
        "hdfs://nn:8020/user/me@site/x is there; see http://host/?mail=me@site",
        "the edge cluster 127.0.0.1:9092 has no offset 12345678",
    ],
)
def test_ordinary_messages_stay_readable(text: str) -> None:
    add_secrets_of(
        {"registry": {"url": "http://hourmark:hourmark@127.0.0.1:1"}, "etl": {"tasks": 12345678}}
    )
    assert redact(text) == text


def test_a_value_that_cannot_be_read_is_named_without_its_secret(tmp_path: Path) -> None:
    file = tmp_path / "hourmark.toml"
    for text in (
        f'[registry]\nurl = ["http://me:{LEFT}@host"]',
        f'[kafka.edge.properties]\n"sasl.password" = ["{LEFT}"]',
        f'[storage]\nroot = "http://me:{LEFT}@host"',
        f'[service]\nport = "http://me:{LEFT}@host"',
    ):
        file.write_text(text)
        with pytest.raises(ConfigError) as wrong:
            load_config(file)
        assert leaks(str(wrong.value)) == [] and text[1:].partition("]")[0] in str(wrong.value)
    assert RegistrySettings().url in repr(RegistrySettings()), "what holds no secret is shown"
