"""The setting `keys` fills fields from keys that are no field names, and from nested objects."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.service.forms import FREE_TEXT, NOW_S, of_rule

from hourmark.rules.event_types import EventType
from hourmark.rules.line_rule import LineRule

FIELDS: list[dict[str, Any]] = [
    {"name": "level", "type": ["null", "string"], "default": None},
    {"name": "status", "type": ["null", "long"], "default": None},
    {"name": "rest", "type": FREE_TEXT},
]
KEYS = {"level": "log.level", "status": ["http", "response", "status"]}
KEPT = {"unknown": "keep", "unknown_field": "rest"}
NESTED = of_rule(FIELDS, time="observed", keys=KEYS, **KEPT)


def line(**values: Any) -> bytes:
    return json.dumps(values).encode()


def test_keys_fill_fields_of_another_name_and_the_rest_is_kept() -> None:
    row = NESTED.one(
        line(
            **{"log.level": "info", "http": {"response": {"status": 200}, "method": "GET"}, "a": 1}
        )
    )
    assert (row["level"], row["status"]) == ("info", 200)
    assert row["rest"] == {"http": '{"method":"GET"}', "a": "1"}


def test_an_object_is_gone_when_all_of_its_values_are_fields() -> None:
    row = NESTED.one(line(http={"response": {"status": 200}}))
    assert (row["status"], row["rest"]) == (200, {})
    assert NESTED.one(line(http={"response": {}}))["rest"] == {"http": '{"response":{}}'}


@pytest.mark.parametrize("http", [7, None, [], [{"response": {"status": 5}}], {"response": 5}, {}])
def test_a_path_that_a_line_does_not_have_is_no_value(http: Any) -> None:
    row = NESTED.one(line(http=http))
    assert row["status"] is None
    assert json.loads(row["rest"]["http"]) == http


def test_a_key_of_the_fields_name_counts_where_the_declared_key_is_absent() -> None:
    assert NESTED.one(line(level="warn"))["level"] == "warn"
    row = NESTED.one(line(**{"level": "warn", "log.level": "info"}))
    assert (row["level"], row["rest"]) == ("info", {})


def test_keys_may_be_swapped() -> None:
    fields = [{"name": "a", "type": "long"}, {"name": "b", "type": "long"}]
    swapped = of_rule(fields, time="observed", keys={"a": "b", "b": "a"})
    row = swapped.one(line(a=1, b=2))
    assert (row["a"], row["b"]) == (2, 1)


def test_time_and_host_may_be_nested() -> None:
    tried = of_rule(
        FIELDS,
        time_field="at",
        time_format="unix",
        host_field="node",
        keys={"at": ["t", "$date"], "node": ["host", "name"], **KEYS},
        **KEPT,
    )
    row = tried.one(line(t={"$date": NOW_S}, host={"name": "db-2", "ip": "192.0.2.7"}))
    assert (row["event_time"].timestamp(), row["host"]) == (NOW_S, "db-2")
    assert row["rest"] == {"host": '{"ip":"192.0.2.7"}'}
    assert tried.reason(line(t={"$date": "x"})) == "bad_timestamp"


def test_keys_of_logfmt_are_declared_likewise() -> None:
    tried = of_rule(
        FIELDS, payload="logfmt", time="observed", keys={"status": "http-status"}, **KEPT
    )
    row = tried.one(b"level=info http-status=200 a.b=c")
    assert (row["level"], row["status"], row["rest"]) == ("info", 200, {"a.b": "c"})


def test_a_value_of_another_type_is_a_dead_letter_that_names_the_field() -> None:
    assert NESTED.reason(line(http={"response": {"status": "200"}})) == "wrong_field"
    coerced = of_rule(FIELDS, time="observed", keys=KEYS, coerce=["status"], **KEPT)
    assert coerced.one(line(http={"response": {"status": "200"}}))["status"] == 200


def test_a_nested_secret_is_redacted_and_not_kept_elsewhere() -> None:
    fields: list[dict[str, Any]] = [
        {"name": "user", "type": ["null", "string"], "default": None},
        {"name": "rest", "type": FREE_TEXT},
    ]
    tried = of_rule(
        fields, time="observed", keys={"user": ["a", "user"]}, redact=[{"field": "user"}], **KEPT
    )
    row = tried.one(line(a={"user": "ann", "b": 1}))
    assert (row["user"], row["rest"]) == (None, {"a": '{"b":1}'})


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"keys": {"b": "x"}}, "line.keys = 'b' is not one of the fields"),
        ({"keys": {"level": []}}, "keys.level = .*one key or"),
        ({"payload": "logfmt", "keys": {"level": ["a", "b"]}}, "keys.level = .*one key or"),
        ({"payload": "tsv", "columns": ["level"], "keys": {"level": "a"}}, "keys requires"),
        ({"keys": {"level": "a", "status": ["a", "b"]}}, "keys.status is a prefix of keys.level"),
        ({"keys": {"level": "a", "status": "a"}}, "is a prefix of"),
    ],
)
def test_keys_that_mean_nothing_are_refused(rule: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        EventType(name="x", fields=FIELDS, line=rule)


def test_rules_without_keys_are_written_as_before() -> None:
    assert "keys" not in LineRule(time="observed").model_dump()
