"""What the native pass must leave to Python, and does: a type beyond its limits is a good type all
the same.
"""

from __future__ import annotations

from typing import Any

import pytest
from tools.native_cases import Case, difference, parsed

from hourmark.config.groups import ParsingSettings
from hourmark.rules.event_types import DEAD_LETTERS, EventType, LineRule, Source
from hourmark.rules.revision import Rules, TypeVersion
from hourmark_delivery_service.parsing import CompiledRules

HEADER = b"<13>1 - h a p j - "
ITSELF = {"name": "R", "type": "record"}


def case(
    fields: list[dict[str, Any]],
    line: bytes,
    parsing: ParsingSettings | None = None,
    host: str = "line",
) -> Case:
    kind = EventType(name="j", fields=fields, line=LineRule(time="observed"))
    types = {t.name: TypeVersion(t, number) for number, t in enumerate((kind, DEAD_LETTERS), 1)}
    source = Source(name="app", types=["j"], host=host)
    return Case(
        Rules(
            sequence=1, types=types, sources={"app": source}, parsing=parsing or ParsingSettings()
        ),
        HEADER + line + b"\n",
    )


def doubled(times: int) -> dict[str, Any]:
    """A record whose default, written out, is doubled so many times."""
    made: dict[str, Any] = {
        "type": "record",
        "name": "R0",
        "fields": [{"name": "s", "type": "string", "default": "x" * 1024}],
    }
    for n in range(1, times):
        fields = [
            {"name": "a", "type": made, "default": {}},
            {"name": "b", "type": f"R{n - 1}", "default": {}},
        ]
        made = {"type": "record", "name": f"R{n}", "fields": fields}
    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ([{"name": "r", "type": ["null", doubled(16)], "default": None}], b"{}"),
        ([{"name": "a", "type": "string", "default": "x" * (17 << 20)}], b'{"a":"1"}'),
        (
            [
                {
                    "name": "r",
                    "type": ITSELF
                    | {
                        "fields": [
                            {"name": "a", "type": "int"},
                            {"name": "c", "type": ["null", "R"], "default": {"a": 1}},
                        ]
                    },
                }
            ],
            b'{"r":{"a":5}}',
        ),
        (
            [
                {
                    "name": "r",
                    "type": ITSELF
                    | {
                        "fields": [
                            {"name": "c", "type": ["null", "R"], "default": {}},
                            {"name": "a", "type": "int", "default": 3},
                        ]
                    },
                }
            ],
            b'{"r":{"a":5}}',
        ),
        (
            [
                {
                    "name": "r",
                    "type": ITSELF
                    | {
                        "fields": [
                            {"name": "a", "type": "int"},
                            {
                                "name": "c",
                                "type": {"type": "array", "items": "R"},
                                "default": [{"a": 1}],
                            },
                        ]
                    },
                }
            ],
            b'{"r":{"a":5}}',
        ),
    ],
    ids=[
        "a default that doubles",
        "a long default",
        "a record in itself",
        "an empty record in itself",
        "an array of itself",
    ],
)
def test_what_is_beyond_it_becomes_what_python_makes_of_it(
    fields: list[dict[str, Any]], line: bytes
) -> None:
    made = case(fields, line)
    assert difference(made) == ""
    assert parsed(made, CompiledRules(made.rules))[0].events == 1
    assert CompiledRules(made.rules).types["j"].native is None


def test_a_schema_that_holds_itself_without_such_a_default_is_taken() -> None:
    itself = ITSELF | {
        "fields": [
            {"name": "a", "type": "int"},
            {"name": "c", "type": ["null", "R"], "default": None},
        ]
    }
    made = case([{"name": "r", "type": itself}], b'{"r":{"a":5,"c":{"a":6}}}')
    assert difference(made) == ""
    assert CompiledRules(made.rules).types["j"].native is not None


def test_limits_of_time_beyond_all_times_are_no_limits() -> None:
    assert (
        difference(
            case([{"name": "a", "type": "int"}], b'{"a":1}', ParsingSettings(future_seconds=10**16))
        )
        == ""
    )


def test_a_source_whose_host_is_the_tailers_is_pythons() -> None:
    made = case([{"name": "a", "type": "int"}], b'{"a":1}', host="tailer")
    assert difference(made) == ""
    assert CompiledRules(made.rules).native_source("app") is None
    assert (
        CompiledRules(case([{"name": "a", "type": "int"}], b"{}").rules).native_source("app")
        is not None
    )
