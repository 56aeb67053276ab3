"""A range is parsed as its rules revision names it, whatever is installed, or it waits for software
that can.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.resources
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.revisions import encoded
from tests.support.service.examples import decoded, range_of, rules_of
from tests.support.service.harness import Harness, fed, with_service
from tools.keep_zone_data import installed_zones, zipped

from hourmark.avro.framing import framing_header, unframe
from hourmark.rules.event_types import DEAD_LETTERS
from hourmark.rules.revision import PARSER, ParserVersion, Rules, TypeVersion
from hourmark_delivery_service.parsing import CompiledRules, ParsedRecord, parse_range, zones
from hourmark_delivery_service.parsing.zones import load_zone, zone_versions
from hourmark_delivery_service.work.framing import Framing
from hourmark_delivery_service.work.rules_store import RulesStore

ROOT = Path(__file__).parents[4]
LINE = b"2026-11-21 02:39:58,123 INFO started\n"  # in Berlin
LATER = ParserVersion(PARSER.parser, "2027.1")


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second version of the zone data, in which Berlin keeps its summer time."""
    shutil.copy(zones.FOLDER / f"{PARSER.zones}.zip", tmp_path)
    installed = installed_zones()
    (tmp_path / f"{LATER.zones}.zip").write_bytes(
        zipped({**installed, "Europe/Berlin": installed["Etc/GMT-2"]})
    )
    monkeypatch.setattr(zones, "FOLDER", tmp_path)


def parsed_by(rules: Rules) -> list[ParsedRecord]:
    byte_range = range_of(LINE, "servers", rules=rules.id)
    return list(parse_range(byte_range, LINE, CompiledRules(rules)).records)


def of_parser(sequence: int, parser: ParserVersion) -> Rules:
    return dataclasses.replace(rules_of(sequence), parser=parser)


def times(records: list[ParsedRecord]) -> list[int]:
    return [int.from_bytes(record.key[:6]) for record in records]


def feed(store: RulesStore, *revisions: Rules) -> None:
    for rules in revisions:
        store.feed(encoded(rules.records()), from_start=False)


@pytest.mark.usefixtures("planted")
def test_each_revision_is_parsed_with_the_zone_data_it_names() -> None:
    assert zone_versions() == {PARSER.zones, LATER.zones}
    before = parsed_by(of_parser(1, PARSER))
    after = parsed_by(of_parser(2, LATER))
    again = parsed_by(of_parser(1, PARSER))
    assert again == before, "a version that was read since changes nothing"
    assert times(before)[0] - times(after)[0] == 3_600_000


def test_a_damaged_version_is_said_and_not_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = (zones.FOLDER / f"{PARSER.zones}.zip").read_bytes()
    (tmp_path / f"{PARSER.zones}.zip").write_bytes(whole[:1000] + b"\0" * 1000 + whole[2000:])
    monkeypatch.setattr(zones, "FOLDER", tmp_path)
    with pytest.raises(ValueError, match=rf"{PARSER.zones}\.zip cannot be read: .*install"):
        CompiledRules(rules_of())


_PARSES = """
import sys, tzdata
from tests.unit.delivery_service.parsing.test_parsing_versions import asuncion
print(tzdata.__version__, asuncion())
"""


def asuncion() -> str:
    """What a local time of July 2026 becomes in a zone whose rules changed in 2024."""
    line = b"2026-07-01 08:30:00,000 INFO paid\n"
    byte_range = range_of(
        line, "servers", zone="America/Asuncion", observed_at_ms=1_782_907_200_000
    )
    result = parse_range(byte_range, line, CompiledRules(rules_of()))
    return f"{byte_range.range_id(line).hex()} {result.records!r} {result.audit!r}"


@pytest.mark.slow
def test_two_instances_with_other_zone_data_installed_give_equal_records(tmp_path: Path) -> None:
    package = importlib.resources.files("tzdata")
    assert isinstance(package, Path)
    old = tmp_path / "old"
    shutil.copytree(package, old / "tzdata")
    zoneinfo = old / "tzdata" / "zoneinfo"
    shutil.copy(
        zoneinfo / "Etc" / "GMT+4", zoneinfo / "America" / "Asuncion"
    )  # as it was in winter until 2024
    (old / "tzdata" / "__init__.py").write_text('__version__ = "2024.1"')
    first, second = (_instance(*found) for found in (((), ""), ((old,), str(zoneinfo))))
    assert first[0] == importlib.metadata.version("tzdata")
    assert second[0] == "2024.1", "the other instance has the other package"
    assert first[1] == second[1]
    assert "server" in first[1], "it is an event"


def _instance(folders: tuple[Path, ...], machine: str) -> list[str]:
    path = os.pathsep.join(map(str, (*folders, ROOT)))
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        **({"PYTHONTZPATH": machine} if machine else {}),
    }
    done = subprocess.run(
        [sys.executable, "-c", _PARSES], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split(maxsplit=1)


@pytest.mark.parametrize(
    "parser",
    [
        LATER,
        ParserVersion(PARSER.parser + 1, PARSER.zones),
        ParserVersion(1, "../zone_data/2026.6"),
    ],
)
@with_service()
async def test_where_the_newest_parser_is_not_at_hand_everything_waits(
    h: Harness, parser: ParserVersion
) -> None:
    unknown = of_parser(7, parser)
    feed(h.rules, of_parser(6, PARSER), unknown)
    answer = await h.post_range(LINE, "servers", rules=unknown.id)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    error = answer.json()
    assert error["code"] == "not_ready"
    for named in (
        unknown.id,
        repr(parser.parser),
        repr(parser.zones),
        "the parsers 1, 2, 3 ",
        PARSER.zones,
        "upgrade this service",
    ):
        assert named in error["detail"]
    assert not h.queue.records
    assert h.rules.latest is None, "an older one would let in what hours no longer wait for"


@pytest.mark.usefixtures("planted")
@with_service()
async def test_an_upgraded_service_takes_the_ranges_that_waited(h: Harness) -> None:
    rules = of_parser(7, LATER)
    feed(h.rules, rules)
    assert (await h.post_range(LINE, "servers", rules=rules.id)).status_code == 200


@with_service()
async def test_during_an_upgrade_ranges_keep_the_audit_records_of_their_own_revision(
    h: Harness,
) -> None:
    """Services first, then `types apply`: until then nobody reads what a service or an ETL before
    this one could not.
    """
    before = of_parser(5, ParserVersion(1, PARSER.zones))
    feed(h.rules, before)
    for rules, schema_id in ((before, 103), (rules_of(), 101)):
        await h.post_range(b"\n" + LINE, "servers", rules=rules.id)
        assert unframe(h.queue.records[-1].value)[0] == schema_id
    assert [record.topic for record in h.queue.records].count("events.dead-letters") == 1, (
        "of the first alone"
    )


@with_service()
async def test_a_service_waits_for_the_audit_schema_of_a_revision_that_came(h: Harness) -> None:
    h.service.framing = Framing({True: framing_header(101)}, framing_header(102))
    feed(h.rules, before := of_parser(5, ParserVersion(1, PARSER.zones)))
    assert h.service.lacks_framing()
    answer = await h.post_range(LINE, "servers", rules=before.id)
    assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
    assert h.queue.records == []
    assert (await h.client.get("/readyz")).status_code == 503
    assert (await h.post_range(LINE, "servers")).status_code == 200, (
        "ranges of other revisions wait for nothing"
    )


def with_dead_letters(*fields: dict[str, Any]) -> Rules:
    """A revision of a release whose dead letters had these fields."""
    kind = DEAD_LETTERS.model_copy(update={"fields": list(fields)})
    return dataclasses.replace(
        rules_of(2), types={**rules_of().types, kind.name: TypeVersion(kind, 50)}
    )


OURS = DEAD_LETTERS.fields
TENANT: dict[str, Any] = {"name": "tenant", "type": "string"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (OURS[:-1], {}),
        (OURS[2:5], {}),
        ([], {}),
        (OURS[::-1], {}),
        ([*OURS, {**TENANT, "default": "none"}], {"tenant": "none"}),
        ([{**TENANT, "type": ["null", "string"], "default": None}, *OURS], {"tenant": None}),
    ],
)
@with_service()
async def test_dead_letters_have_the_fields_that_their_revision_declares(
    h: Harness, fields: list[dict[str, Any]], expected: dict[str, Any]
) -> None:
    rules = with_dead_letters(*fields)
    feed(h.rules, rules)
    answer = await h.post_range(b"no syslog\n", rules=rules.id)
    assert answer.json() == {
        "end": 10,
        "events": 0,
        "dead_letters": 1,
        "blanks": 0,
        "dead_letter_reasons": {"not_rfc5424": 1},
    }
    (record,) = parse_range(
        range_of(b"no syslog\n", rules=rules.id), b"no syslog\n", CompiledRules(rules)
    ).records
    row = decoded(record, rules)
    assert {name: row[name] for name in expected} == expected
    assert row.keys() - expected.keys() - {f["name"] for f in OURS} == {
        "event_id",
        "event_time",
        "host",
        "source",
        "file",
        "position",
    }
    assert all(
        row[name] == value
        for name, value in (("reason", "not_rfc5424"), ("raw", b"no syslog"))
        if name in row
    )


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ([*OURS, TENANT], "tenant without a default"),
        (
            [{"name": "range_end", "type": "int"}],
            "range_end of its dead-letters must be a whole number",
        ),
        ([{"name": "raw", "type": {"type": "fixed", "name": "Raw", "size": 3}}], "raw"),
        ([{"name": "claimed_type", "type": "string"}], "claimed_type"),
        (
            [
                {
                    "name": "reason",
                    "type": {
                        "type": "enum",
                        "name": "Reason",
                        "symbols": ["bad_json", "no_pattern"],
                    },
                }
            ],
            "reason",
        ),
    ],
)
@with_service()
async def test_dead_letters_that_cannot_be_written_make_ranges_wait_and_nothing_fails(
    h: Harness, fields: list[dict[str, Any]], named: str
) -> None:
    rules = with_dead_letters(*fields)
    feed(h.rules, rules)
    for body in (b"no syslog\n", LINE):
        answer = await h.post_range(body, rules=rules.id)
        assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
        assert named in answer.json()["detail"]
    assert h.rules.latest is None


def test_a_revision_with_another_envelope_waits() -> None:
    """Its events would be written into the wrong fields."""
    store = fed(*rules_of().records())
    version = rules_of().types["click"]
    text = version.text.replace('"name":"position"', '"name":"offset"')
    changed = dataclasses.replace(version, schema_id=51, published=text)
    rules = dataclasses.replace(rules_of(2), types={**rules_of().types, "click": changed})
    feed(store, rules)
    assert store.get(rules.id) is None
    assert (
        "type click does not begin with the envelope of this version"
        in store.unavailable_reason(rules.id)
    )


def test_zones_are_found_by_their_whole_names_only() -> None:
    assert load_zone("Europe/Berlin", PARSER.zones) is load_zone("Europe/Berlin", PARSER.zones)
    wrong = (
        "",
        "Europe/../UTC",
        "/etc/passwd",
        "Europe",
        "europe/berlin",
        "Nowhere/City",
        "\0",
        "tzdata.zi",
    )
    assert [load_zone(name, PARSER.zones) for name in wrong] == [None] * len(wrong)
    with pytest.raises(ValueError, match="cannot be read"):
        load_zone("UTC", "1970.1")
