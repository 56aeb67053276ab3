"""Fields of a declaration: what is accepted can be published, read back and used; what cannot is
refused with its place.
"""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.support.avro_types import array, logical, map_of

from hourmark.avro.fields import check_fields
from hourmark.errors import TypeFileError
from hourmark.rules.change import next_rules
from hourmark.rules.event_types import DEAD_LETTERS, Declarations, EventType, read_declarations
from hourmark.rules.revision import RulesBook, TypeVersion
from hourmark_delivery_service.parsing.compiled import CompiledType

COLOUR = {"type": "enum", "name": "Colour", "symbols": ["red", "green"]}
FOUR = {"type": "fixed", "name": "Four", "size": 4}
POINT = {
    "type": "record",
    "name": "Point",
    "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int", "default": 0}],
}
TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": "next", "type": ["null", "Tree"], "default": None}],
}


def field(avro_type: object, **more: object) -> dict[str, Any]:
    return {"name": "f", "type": avro_type, **more}


def deep(levels: int) -> object:
    return {"type": "array", "items": deep(levels - 1)} if levels else "int"


def nested(levels: int) -> list[Any]:
    return [nested(levels - 1)] if levels else []


@pytest.mark.parametrize(
    "accepted",
    [
        field("long", default=-(1 << 63)),
        field("double", default=1),
        field("double", default=1e22),
        field("float", default=1 << 24),
        field("bytes", default="\xff\0"),
        field(
            "string",
            default="\0\U0001f600e\u0301",
            doc="é",
            order="ignore",
            aliases=["g"],
            unit="m",
            more={"a": [1, None]},
        ),
        field(["null", "hourmark.File"], default=None),
        field(["string", "null"], default=None),
        field(["null", COLOUR], default="red"),
        field(FOUR, default="\0\xff\0a"),
        field(POINT, default={"x": 1}),
        field(TREE, default={}),
        field(array(POINT), default=[{"x": 1, "y": 2}]),
        field(map_of("int"), default={"a": 1}),
        field({"type": "double"}, default=1.0),
        field(["null", array("int"), map_of("int")], default=[]),
        field(logical("long", "timestamp-millis"), default=0),
        field(logical("bytes", "decimal", precision=9, scale=2)),
        field(logical("string", "something")),
        field({"type": "fixed", "name": "Id", "size": 16, "logicalType": "uuid"}),
        field(deep(20)),
    ],
)
def test_what_avro_has_is_accepted(accepted: dict[str, Any]) -> None:
    check_fields([accepted], "own")
    check_survives([accepted])


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (
            field(["null", ["string"]]),
            "type: branch 2: a union cannot directly contain another union",
        ),
        (field(array(["int", ["int"]])), "type: items: branch 2"),
        (field({"type": ["int"]}), "not an Avro type"),
        (field({"type": {"type": "int"}}), "not an Avro type"),
        (field([]), "at least one branch"),
        (field(["string", "string"]), "already has a branch of type string"),
        (field(["string", logical("string", "uuid")]), "already has a branch of type string"),
        (field([array("int"), array("long")]), "already has a branch of type array"),
        (field([FOUR, "Four"]), "already has a branch of type hourmark.events.Four"),
        (field(["hourmark.File", "hourmark.File"]), "already has a branch of type hourmark.File"),
        (field("double", default=math.inf), "default: inf cannot be written"),
        (field("double", default=math.nan), "default: nan cannot be written"),
        (field("double", limits={"a": [math.inf]}), "limits: a: 0: inf"),
        (field("string", default=Path("x")), "JSON cannot represent"),
        (field("string", doc=7), "doc = 7"),
        (field("string", order="up"), "order = 'up'"),
        (field("string", aliases="g"), "aliases"),
        (field("string", aliases=["g h"]), "aliases"),
        (field("long", default="1"), "default: must be a whole number"),
        (field("long", default=True), "default: must be a whole number"),
        (field("long", default=1.0), "default: must be a whole number"),
        (field("int", default=1.5), "default: must be a whole number"),
        (field("int", default=1 << 31), "to 2147483647"),
        (field("long", default=1 << 63), "does not fit into 64 bits"),
        (field(logical("int", "date"), default=1 << 30), "default: must be a whole number"),
        (field(logical("string", "uuid"), default="x"), "UUID"),
        (field("double", default="1.5"), "default: must be a number"),
        (field("double", default=(1 << 53) + 1), "default: must be a number"),
        (field("float", default=1e39), "a float can hold"),
        (field({"type": "double"}, default=1), "default: must be written with a decimal point"),
        (field("boolean", default=0), "true or false"),
        (field("null", default=0), "must be null"),
        (field("string", default=1), "must be a string"),
        (field("string", default="\ud800"), "surrogates"),
        (field("bytes", default="€"), r"U\+00FF"),
        (field(COLOUR, default="blue"), "one of red, green"),
        (field({**COLOUR, "default": "blue"}), "one of red, green"),
        (field({**COLOUR, "symbols": ["red", "red"]}), "must be unique"),
        (field({**COLOUR, "symbols": []}), "requires symbols"),
        (field({**COLOUR, "symbols": ["a b"]}), "requires symbols"),
        (field(FOUR, default="abc"), "must have 4 characters"),
        (field({**FOUR, "size": True}), "requires a size"),
        (field({**FOUR, "size": 0}), "requires a size"),
        (field({**FOUR, "logicalType": "uuid"}), "a uuid has 16 bytes"),
        (field(POINT, default={}), "default: x is missing"),
        (field(POINT, default={"x": 1, "z": 1}), "no field z"),
        (field(POINT, default={"x": "1"}), "default: x: must be a whole number"),
        (field(array("int"), default=[1, "2"]), r"default: \[1\]: must be"),
        (field(array("int"), default={}), "must be an array"),
        (field(map_of("int"), default=[]), "must be a table"),
        (field(["null", "int"], default="x"), "must be null or must be a whole number"),
        (
            field({**TREE, "fields": [field(["Tree", "null"], default={})]}),
            "not declared to its end",
        ),
        (field({"type": "array"}), "needs items"),
        (field({"type": "map"}), "needs values"),
        (field({"type": "enum", "symbols": ["a"]}), "enum needs a name"),
        (field({**FOUR, "name": "string"}), "string is a type of Avro; choose"),
        (field({**FOUR, "name": "a b"}), "needs a name"),
        (
            field({**FOUR, "name": "EventId", "namespace": "hourmark"}),
            "hourmark.EventId is declared twice",
        ),
        (
            field({**POINT, "fields": [field(FOUR), {"name": "g", "type": FOUR}]}),
            "hourmark.events.Four is declared twice",
        ),
        (field({**POINT, "fields": [field("int"), field("int")]}), "it is declared twice"),
        (
            field(
                {**POINT, "fields": [field("int"), {"name": "g", "type": "int", "aliases": ["f"]}]}
            ),
            "aliases: 'f'",
        ),
        (
            field({**POINT, "fields": [field("lang")]}),
            "field 'f': type: hourmark.events.Point: field 'f': type: unknown type",
        ),
        (field({"type": "record", "name": "R"}), "requires `fields`"),
        (field("lang"), "unknown type hourmark.events.lang"),
        (field({"type": "lang"}), "'lang' is not a type of Avro"),
        (field(logical("bytes", "decimal")), "precision"),
        (field(logical("bytes", "decimal", precision=2, scale=3)), "precision"),
        (field({"type": "bytes", "logicalType": 7}), "logicalType"),
        (field(7), "not an Avro type"),
        (field(None), "not an Avro type"),
        ({"name": "f"}, "`type` is missing"),
        ({"type": "int"}, "needs a name"),
        ({"name": "1f", "type": "int"}, "needs a name"),
        ({"name": 7, "type": "int"}, "needs a name"),
        ("f", "needs a name"),
        (field(deep(200)), "levels deep"),
        (field("int", x=nested(200)), "levels deep"),
        (field("int", x={1: 2}), "keys of a JSON object must be strings"),
    ],
)
def test_what_cannot_be_applied_is_refused_with_its_place(refused: object, said: str) -> None:
    with pytest.raises(ValueError, match=said) as error:
        check_fields([refused], "own")
    if isinstance(refused, dict) and refused.get("name") == "f":
        assert str(error.value).startswith("field 'f': ")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ([field("int"), field("int")], "'f': it is declared twice"),
        (
            [{"name": "event_id", "type": "int"}],
            "'event_id': the name is reserved for the event envelope",
        ),
        ([field("int", aliases=["event_id"])], "aliases: 'event_id'"),
        ([field("int", aliases=["g"]), {"name": "g", "type": "int"}], "aliases: 'g'"),
        (
            [field("int", aliases=["h"]), {"name": "g", "type": "int", "aliases": ["h"]}],
            "aliases: 'h'",
        ),
        ([field(FOUR), {"name": "g", "type": FOUR}], "declared twice"),
        ([field({**FOUR, "name": "own"})], "hourmark.events.own is declared twice"),
        ([field(["null", "own"])], "the event itself"),
        ([{"name": "g", "type": "Four"}, field(FOUR)], "unknown type"),
        ([field(COLOUR), {"name": "g", "type": "Colour", "default": "blue"}], "one of red, green"),
    ],
)
def test_fields_are_checked_together(fields: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_fields(fields, "own")


def check_survives(fields: list[dict[str, Any]]) -> None:
    """A declaration of these fields can be registered, published, read back as it was, published
    again, and used.
    """
    declared = EventType(name="own", fields=fields)
    again = EventType.model_validate_json(declared.model_dump_json())
    assert again == declared
    text = json.dumps(declared.schema(), allow_nan=False)
    parse_schema(json.loads(text), named_schemas={})
    version = TypeVersion(declared, 1)
    assert CompiledType(version).problem is None
    ids = {"own": 1, DEAD_LETTERS.name: 2}
    declarations = Declarations([declared, DEAD_LETTERS], [])
    rules = next_rules(RulesBook(), declarations, ids, 3600)
    book = RulesBook(rules.records())
    read = book.latest
    assert read is not None
    assert (read.id, read.types["own"].declaration) == (rules.id, declared)
    assert next_rules(book, declarations, ids, 3600) is read


NAMES = st.sampled_from(
    [
        *"abcdefghijklmnopqrst",
        "Four",
        "Colour",
        "n.Four",
        "event_id",
        "own",
        "hourmark.EventId",
        "int",
        "a b",
        "",
    ]
)
PRIMITIVES = st.sampled_from(
    ["null", "boolean", "int", "long", "float", "double", "string", "bytes"]
)
LOGICAL = st.sampled_from(
    [
        "date",
        "time-millis",
        "timestamp-millis",
        "timestamp-micros",
        "uuid",
        "decimal",
        "duration",
        "x",
    ]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 64), 1 << 64)
    | st.integers(-3, 3)
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["red", "\xff" * 4, "€", "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["x", "f", "g"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def more_types(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Types that hold others; also such as Avro does not have."""
    fields = st.lists(declared_fields(inner), max_size=3)
    return (
        st.lists(inner, max_size=3)
        | st.fixed_dictionaries({"type": st.just("array"), "items": inner})
        | st.fixed_dictionaries({"type": st.just("map"), "values": inner})
        | st.fixed_dictionaries(
            {"type": st.just("record"), "name": NAMES, "fields": fields},
            optional={"namespace": NAMES},
        )
        | st.fixed_dictionaries({"type": inner})
    )


def default_of(avro_type: object) -> st.SearchStrategy[Any]:
    """Mostly values of that type."""
    kind = avro_type.get("type") if isinstance(avro_type, dict) else avro_type
    if isinstance(kind, list) and kind:
        return st.sampled_from(kind).flatmap(default_of)
    if isinstance(avro_type, dict) and kind == "record":
        fields = {
            f["name"]: default_of(f["type"])
            for f in avro_type["fields"]
            if isinstance(f["name"], str)
        }
        return st.fixed_dictionaries(fields)
    if isinstance(avro_type, dict) and kind in ("array", "map"):
        inner = default_of(avro_type["items" if kind == "array" else "values"])
        return (
            st.lists(inner, max_size=2)
            if kind == "array"
            else st.dictionaries(st.text(max_size=2), inner, max_size=2)
        )
    numbers = st.integers(-(1 << 31), (1 << 31) - 1)
    by_kind = {
        "null": st.none(),
        "boolean": st.booleans(),
        "int": numbers,
        "long": numbers | st.integers(-(1 << 63), (1 << 63) - 1),
        "float": st.floats(width=32) | numbers,
        "double": st.floats() | numbers,
        "bytes": st.binary(max_size=5).map(lambda raw: raw.decode("latin-1")),
        "fixed": st.text(st.characters(max_codepoint=255), min_size=1, max_size=16),
        "enum": st.sampled_from(["red", "green"]),
        "string": st.text(max_size=5) | st.uuids().map(str),
    }
    return by_kind.get(str(kind), VALUES)


@st.composite
def declared_fields(draw: st.DrawFn, types: st.SearchStrategy[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": draw(NAMES), "type": draw(types)}
    if draw(st.booleans()):
        found["default"] = draw(default_of(found["type"]) if draw(st.integers(0, 4)) else VALUES)
    for key, values in (
        ("doc", st.text(max_size=3)),
        ("aliases", st.lists(NAMES, max_size=2)),
        ("unit", VALUES),
    ):
        if draw(st.integers(0, 5)) == 0:
            found[key] = draw(values)
    return found


LEAVES = (
    PRIMITIVES
    | NAMES
    | st.fixed_dictionaries(
        {"type": PRIMITIVES},
        optional={
            "logicalType": LOGICAL,
            "precision": st.integers(-1, 40),
            "scale": st.integers(-1, 9),
        },
    )
    | st.fixed_dictionaries(
        {
            "type": st.just("enum"),
            "name": NAMES,
            "symbols": st.lists(st.sampled_from(["red", "green", "a b"]), max_size=2),
        },
        optional={"default": st.sampled_from(["red", "blue"])},
    )
    | st.fixed_dictionaries(
        {"type": st.just("fixed"), "name": NAMES, "size": st.integers(-1, 16)},
        optional={"logicalType": LOGICAL},
    )
)
FIELDS = declared_fields(st.recursive(LEAVES, more_types, max_leaves=5))


@pytest.mark.slow
@settings(max_examples=500)
@given(st.lists(FIELDS, min_size=1, max_size=5))
def test_whatever_is_accepted_survives(fields: list[dict[str, Any]]) -> None:
    accepted: list[dict[str, Any]] = []
    for one in fields:
        with contextlib.suppress(ValueError):
            check_fields([*accepted, one], "own")
            accepted.append(one)
    event(f"accepted: {len(accepted)}")
    check_survives(accepted)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'type = ["null", ["string"]]',
            (
                r"u\.toml:\n  fields: field 'x': type: branch 2: a union cannot directly "
                r"contain another union"
            ),
        ),
        (
            'type = "string"\ndoc = 2026-01-01',
            r"u\.toml:\n  fields: field 'x': doc: 2026-01-01 is a date",
        ),
        (
            'type = "double"\ndefault = inf',
            r"u\.toml:\n  fields: field 'x': default: inf cannot be written as JSON",
        ),
        (
            'type = "int"\naliases = ["event_id"]',
            r"u\.toml:\n  fields: field 'x': aliases: 'event_id'",
        ),
        (
            f'type = "int"\nn = 0x{"f" * 9000}',
            r"u\.toml:\n  fields: field 'x': n: an integer does not fit into 64 bits",
        ),
        (f'type = "int"\nn = {"9" * 9000}', r"u\.toml is not valid TOML"),
        (f"type = {'[' * 5000}", r"u\.toml is not valid TOML"),
    ],
)
def test_a_file_that_cannot_be_applied_is_refused_by_file_field_and_reason(
    tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "u.toml").write_text(f'name = "u"\n[[fields]]\nname = "x"\n{text}\n')
    with pytest.raises(TypeFileError, match=said):
        read_declarations(tmp_path)


def test_a_declaration_in_force_is_read_as_it_stands() -> None:
    """What an earlier software let pass, and the registry took, must not stop a service."""
    of_old = {"name": "x", "type": "long", "aliases": ["event_id"], "doc": 7, "limit": 1 << 70}
    taken = EventType.model_validate_json(json.dumps({"name": "u", "fields": [of_old]}))
    assert taken.fields == [of_old]
    with pytest.raises(ValueError, match="doc = 7"):
        check_fields([{**of_old, "limit": 1}], "own")


@pytest.mark.parametrize("value", [math.inf, math.nan, Path("x"), "\ud800", {1: 2}, (1, 2)])
def test_no_declaration_holds_what_the_topic_cannot(value: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        EventType(name="u", fields=[{"name": "x", "type": "double", "unit": value}])


@pytest.mark.parametrize("name", ["internal", "audit-internal", "replica"])
def test_a_type_whose_topic_would_never_be_copied_is_refused_where_it_is_declared_and_read_where_it_is_in_force(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / f"{name}.toml").write_text(f'name = "{name}"\nfields = []\n')
    with pytest.raises(
        TypeFileError, match=f"MirrorMaker 2 treats events.{name} as one of its internal topics"
    ):
        read_declarations(tmp_path)
    assert EventType.model_validate({"name": name, "fields": []}).name == name


@pytest.mark.parametrize("name", ["internals", "internal-audit", "a-replica", "replicas"])
def test_a_type_whose_topic_is_copied_may_be_named_so(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.toml").write_text(f'name = "{name}"\nfields = []\n')
    assert name in {declared.name for declared in read_declarations(tmp_path).types}
