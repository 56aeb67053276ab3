"""Avro types, each with JSON texts that it takes and texts that it refuses."""

from __future__ import annotations

from typing import Any


def logical(avro: str, name: str, **more: int) -> dict[str, Any]:
    """An annotated type."""
    return {"type": avro, "logicalType": name, **more}


_INNER = {
    "type": "record",
    "name": "Inner",
    "fields": [
        {"name": "a", "type": "long"},
        {"name": "b", "type": ["null", "double"], "default": None},
    ],
}

VALUES: dict[str, tuple[Any, list[str], list[str]]] = {
    "long": (
        "long",
        ["5", "-9223372036854775808", "-0"],
        ["1.0", "true", '"5"', "null", "9223372036854775808", "1e2"],
    ),
    "int": ("int", ["5", "-2147483648"], ["2147483648", "5.0", "false"]),
    "double": (
        "double",
        ["0.1", "-0.0", "5", "1e300", "0.30000000000000004", "1E-400"],
        ["9007199254740993", "true", '"1"'],
    ),
    "float": ("float", ["0.1", "-0.0", "16777216", "3.4e38"], ["16777217", "1e39", "null"]),
    "boolean": ("boolean", ["true", "false"], ["1", '"true"']),
    "string": (
        "string",
        ['"é"', '"e\\u0301"', '""', '"\\ud83d\\ude00"', '"\\u0000"'],
        ["1", "null", '"\\ud800"', '"\\udc00x"'],
    ),
    "bytes": ("bytes", ['"x"', '"\\u00ff\\u0000"', '""'], ['"\\u0100"', "1"]),
    "fixed": (
        {"type": "fixed", "name": "F", "size": 2},
        ['"\\u00ff\\u0000"'],
        ['"x"', '"xyz"', "1"],
    ),
    "millis": (
        logical("long", "timestamp-millis"),
        [
            "1763683200000",
            '"2026-11-21T01:00:00.5Z"',
            '"0001-01-01T00:00:00Z"',
            '"9999-12-31T23:59:59.999Z"',
            "-62135596800000",
        ],
        ['"2026-11-21T01:00:00.0001Z"', '"2026-11-21"', "253402300800000"],
    ),
    "micros": (
        logical("long", "timestamp-micros"),
        ["5", '"2026-11-21T01:00:00.000001+01:00"'],
        ['"2026-11-21T01:00:00.0000001Z"'],
    ),
    "local": (
        logical("long", "local-timestamp-millis"),
        ["5", "-5"],
        ['"2026-11-21T01:00:00"', "253402300800000"],
    ),
    "local-micros": (logical("long", "local-timestamp-micros"), ["5"], ["253402300800000000"]),
    "date": (
        logical("int", "date"),
        ["20000", "-719162", "2932896"],
        ["2932897", "-719163", '"2026-11-21"'],
    ),
    "time": (logical("int", "time-millis"), ["0", "86399999"], ["86400000", "-1"]),
    "time-micros": (logical("long", "time-micros"), ["86399999999"], ["86400000000", "-1"]),
    "uuid": (
        logical("string", "uuid"),
        ['"00000000-0000-4000-8000-00000000000a"'],
        ['"00000000-0000-4000-8000-00000000000A"', '"x"'],
    ),
    "uuid-fixed": (
        {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"},
        ['"00000000-0000-4000-8000-00000000000a"', '"0123456789abcdef"'],
        ['"x"'],
    ),
    "decimal": (logical("bytes", "decimal", precision=4, scale=2), ['"\\u0001"'], ["1", "0.01"]),
    "enum": ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, ['"A"', '"B"'], ['"C"', "0"]),
    "map": (
        {"type": "map", "values": "bytes"},
        ['{"a": "x", "": "\\u00ff"}', "{}"],
        ['{"a": 1}', "[]"],
    ),
    "array": (
        {"type": "array", "items": ["null", "double"]},
        ["[null, 1, -0.0]", "[]"],
        ["[true]", "{}"],
    ),
    "longs": ({"type": "array", "items": "long"}, ["[1, 0]"], ["[true, false]", "[1.0]"]),
    "record": (
        _INNER,
        ['{"a": 1}', '{"b": null, "a": 2}', '{"a": 3, "b": 4}'],
        ["{}", '{"a": 1, "c": 2}', '{"a": true}'],
    ),
    "optional": (["null", "string"], ["null", '"x"'], ["1"]),
    "union": (
        ["null", "long", "double", "string"],
        ["null", "1", "1.0", '"1"', "-0.0"],
        ["true", "[]"],
    ),
    "ends": (["long", {"type": "array", "items": "string"}], ["1", '["a"]'], ["null", '["a", 1]']),
}
