"""What `input` may say; what may not be is named with what is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from hourmark.config.groups import TailerSettings
from hourmark.errors import ConfigError
from hourmark_producer.settings import validate_settings


def settings(*sources: dict[str, Any], **others: Any) -> TailerSettings:
    return TailerSettings(
        sources=[{"name": f"s{n}"} | source for n, source in enumerate(sources)], **others
    )


@pytest.mark.parametrize(
    ("text", "others"),
    [
        ("stdin", {}),
        ("syslog+tcp://127.0.0.1:5514", {}),
        ("syslog+udp://[::1]:5514", {}),
        ("syslog+udp://localhost:0", {}),
        (
            "syslog+tls://0.0.0.0:6514",
            {"syslog": {"beyond_loopback": True, "tls": {"certificate": "a.pem"}}},
        ),
    ],
)
def test_what_is_allowed(text: str, others: dict[str, Any]) -> None:
    validate_settings(settings({"input": text}, **others))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "tcp://127.0.0.1:1",
            r"tailer\.sources\.0\.input = 'tcp://127\.0\.0\.1:1': allowed: stdin, journald, syslog",
        ),
        ("syslog+tcp://127.0.0.1", "allowed"),
        ("syslog+tcp://127.0.0.1:99999", "allowed"),
        ("syslog+tcp://127.0.0.1:1/path", "allowed"),
        (
            "syslog+udp://0.0.0.0:514",
            r"accepts data from other machines, which needs tailer\.syslog\.beyond_loopback = true",
        ),
        ("syslog+tls://127.0.0.1:6514", r"needs tailer\.syslog\.tls\.certificate"),
    ],
)
def test_what_is_not_allowed(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        validate_settings(settings({"input": text}))


@pytest.mark.parametrize(
    "other", [{"paths": ["/var/log/a"]}, {"record_start": "^x"}, {"format": "cri"}]
)
def test_what_receives_is_nothing_else(other: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="cannot be combined with `input`"):
        validate_settings(settings({"input": "stdin"} | other))


def test_a_source_has_files_or_an_input() -> None:
    with pytest.raises(ConfigError, match=r"tailer\.sources\.0\.paths is empty"):
        validate_settings(settings({}))


def test_standard_input_is_there_once() -> None:
    with pytest.raises(ConfigError, match="one source can have input = 'stdin'"):
        validate_settings(settings({"input": "stdin"}, {"input": "stdin"}))


def test_a_message_is_no_longer_than_a_line() -> None:
    with pytest.raises(
        ConfigError, match=r"message_bytes_max = 65536 is more than tailer\.line_bytes_max = 1024"
    ):
        validate_settings(settings({"input": "syslog+udp://127.0.0.1:5514"}, line_bytes_max=1024))


def test_a_limit_of_messages_is_nothing_to_a_tailer_that_receives_none() -> None:
    validate_settings(settings({"input": "stdin"}, line_bytes_max=1024))
    validate_settings(settings({"paths": ["/var/log/app.log"]}, line_bytes_max=1024))


@pytest.mark.parametrize("setting", ["paths", "exclude"])
def test_alternatives_in_braces_are_refused_with_what_to_write(setting: str) -> None:
    with pytest.raises(
        ConfigError, match=r"sources\.0\.\w+ = '/var/log/\*\.\{log,err\}': .* as '/var/log/\*\.log'"
    ):
        validate_settings(settings({"paths": ["/var/log/x"]} | {setting: ["/var/log/*.{log,err}"]}))
    validate_settings(settings({"paths": ["/var/log/{one}.log", "/var/log/[{]a,b}.log"]}))
