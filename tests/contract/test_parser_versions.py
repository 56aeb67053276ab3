"""What parsing gives never changes: zone data as it was kept, and every parser's results as they
were.
"""

from __future__ import annotations

import importlib.metadata
import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import re2
from tests.support.tiers import representative
from tools import keep_parser_vectors, keep_zone_data, parser_cases
from tools.keep_zone_data import digest_of, installed_zones, zipped
from tools.parser_texts import LOCAL_TIMES, PATTERNS

from hourmark.config.loading import Config
from hourmark.errors import Finding, UsageError
from hourmark.records import cri, dead_letters
from hourmark.records.dead_letters import DeadLetterReason
from hourmark.records.record_start import RecordStart
from hourmark.rules.revision import PARSER
from hourmark_delivery_service.parsing import (
    ParsedRecord,
    json_payload,
    parser_check,
    records,
    zones,
)
from hourmark_delivery_service.parsing.parser_check import EXTRAS, KEPT, ParserVectors, check_parser
from hourmark_delivery_service.parsing.parsers import PARSERS
from hourmark_delivery_service.parsing.reject import Rejected
from hourmark_delivery_service.parsing.times.formats import TimeContext, TimeFormat
from hourmark_delivery_service.parsing.values import patterns, primitives
from hourmark_delivery_service.parsing.values.patterns import LinePattern
from hourmark_delivery_service.parsing.zones import FOLDER, zone_versions
from hourmark_delivery_service.process.server import run

pytestmark = pytest.mark.slow

VECTORS = Path(__file__).parent / "vectors"


def kept_zones(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_new_revisions_name_a_parser_and_zone_data_that_are_at_hand() -> None:
    assert PARSER.parser == max(PARSERS)
    assert PARSER.zones == max(
        zone_versions(), key=lambda version: [int(part) for part in version.split(".")]
    )


def test_zone_data_is_as_it_was_kept() -> None:
    kept = {
        version: digest_of(kept_zones(FOLDER / f"{version}.zip")) for version in zone_versions()
    }
    assert kept == json.loads((VECTORS / "zone_data.json").read_text()), (
        "a version that is named never changes, nor goes"
    )


def test_zone_data_is_that_of_the_tzdata_package() -> None:
    installed = importlib.metadata.version("tzdata")
    if installed not in zone_versions():
        pytest.skip(f"tzdata {installed} is installed, and not kept")
    assert kept_zones(FOLDER / f"{installed}.zip") == installed_zones()


def test_keeping_zone_data_is_reproducible_and_never_replaces(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, digests = tmp_path / "zone_data", tmp_path / "zone_data.json"
    keep_zone_data.main(folder, digests)
    assert "hourmark.rules.revision.PARSER" in capsys.readouterr().out
    (file,) = folder.iterdir()
    zones = kept_zones(file)
    assert file.read_bytes() == zipped(dict(reversed(zones.items())))
    assert json.loads(digests.read_text()) == {file.stem: digest_of(zones)}
    before = file.read_bytes()
    with pytest.raises(UsageError, match="must not be written again"):
        keep_zone_data.main(folder, digests)
    assert file.read_bytes() == before


def test_a_zone_that_is_altered_missing_or_renamed_is_found() -> None:
    zones = {"A": b"TZif1", "B": b"TZif2"}
    others = [
        {"A": b"TZif1"},
        {"A": b"TZif2", "B": b"TZif1"},
        {"A": b"TZif1", "C": b"TZif2"},
        {"A": b"TZif1B", "B": b"TZif2"},
    ]
    assert digest_of(zones) not in {digest_of(other) for other in others}
    assert digest_of(zones) == digest_of(dict(reversed(zones.items())))


def test_each_parser_gives_what_was_kept() -> None:
    for number in KEPT:
        assert ParserVectors.load(number).failing_names() == []
    check_parser()


def test_every_parser_has_its_vectors_and_no_other_has_some() -> None:
    assert {file.name for file in parser_check.FOLDER.iterdir()} == {
        f"{number}.json" for number in KEPT
    }
    for number in KEPT:
        kept = json.loads((parser_check.FOLDER / f"{number}.json").read_text())
        named = {
            json.loads(value)["parser"]["parser"]
            for key, value in kept["rules"]
            if key.startswith("rules/")
        }
        assert named == {int(number.partition("-")[0])}


@pytest.mark.slow
def test_the_vectors_cover_every_reason_type_and_zone() -> None:
    vectors = ParserVectors.load(PARSER.parser)
    reasons, types, names = set[str](), set[str](), set[str]()
    for vector in vectors.vectors:
        names |= set(vector.get("range", {}).get("zones", ()))
        for parsed in vectors.parse(vector):
            types |= {record.event_type for record in parsed.records}
            reasons |= {
                r.value
                for r in DeadLetterReason
                if any(_says(record, r) for record in parsed.records)
            }
    (extras,) = map(ParserVectors.load, EXTRAS)
    of_extras = [
        record
        for vector in extras.vectors
        for parsed in extras.parse(vector)
        for record in parsed.records
    ]
    reasons |= {r.value for r in DeadLetterReason if any(_says(record, r) for record in of_extras)}
    assert reasons == {reason.value for reason in DeadLetterReason}
    declared = {name for rules in parser_cases.REVISIONS for name, t in rules.types.items()}
    unusable = {f"matched-{at}" for at, pattern in enumerate(PATTERNS) if not accepted(pattern)}
    assert declared - types == unusable | {f"timed-{len(LOCAL_TIMES)}", "text-map"}
    data = kept_zones(FOLDER / f"{PARSER.zones}.zip")
    assert {data[name] for name in names & data.keys()} == set(data.values()), (
        "a zone of each content"
    )


def _says(record: ParsedRecord, reason: DeadLetterReason) -> bool:
    return (
        record.event_type == dead_letters.TYPE
        and reason.value.encode() in record.value[5 + 16 :][:200]
    )


def accepted(pattern: str) -> bool:
    try:
        return "other" not in LinePattern(pattern).groups
    except ValueError:
        return False


def _later_minute(self: TimeFormat, text: bytes, context: TimeContext) -> int | None:
    found = READ_MS(self, text, context)
    return found if found is None or found % 7 else found + 1


def rounded(form: str, value: float) -> bytes:
    return struct.pack(form, float(f"{value:.16g}"))


def in_utf8(pattern: bytes, _options: object) -> Any:
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)


READ_MS = TimeFormat.read_ms
CHANGES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "times a millisecond later, some of them": lambda patch: patch.setattr(
        TimeFormat, "read_ms", _later_minute
    ),
    "floats rounded": lambda patch: patch.setattr(
        primitives, "struct", SimpleNamespace(pack=rounded, unpack=struct.unpack)
    ),
    "another JSON decoder": lambda patch: patch.setattr(json_payload, "_decode", json.loads),
    "errors said otherwise": lambda patch: patch.setattr(
        json_payload,
        "_refusal",
        lambda payload, error: Rejected(DeadLetterReason.BAD_JSON, f"JSON: {error}"),
    ),
    "patterns in UTF-8": lambda patch: patch.setattr(
        patterns, "re2", SimpleNamespace(**vars(re2) | {"compile": in_utf8})
    ),
    "hours of another length": lambda patch: patch.setattr(
        records, "hour_start_s", lambda ms, length_s: ms // 1000
    ),
    "dead letters without their detail": lambda patch: patch.setattr(
        records, "DETAIL_CHARS_MAX", 20
    ),
    "a library that fails": lambda patch: patch.setattr(
        json_payload, "_decode", lambda payload: [][0]
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", representative([*CHANGES]))
def test_a_planted_change_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    CHANGES[name](monkeypatch)
    with pytest.raises(Finding, match=r"differ, the first one is"):
        check_parser()


@pytest.mark.slow
@pytest.mark.parametrize(
    "zone", representative(["America/Asuncion", "Africa/Cairo", "Pacific/Apia"])
)
def test_a_planted_change_of_one_zone_is_found(
    zone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = kept_zones(FOLDER / f"{PARSER.zones}.zip")
    (tmp_path / f"{PARSER.zones}.zip").write_bytes(zipped({**kept, zone: kept["Etc/GMT+9"]}))
    monkeypatch.setattr(zones, "FOLDER", tmp_path)
    found = ParserVectors.load(PARSER.parser).failing_names()
    assert any(name.startswith(f"zones {zone.partition('/')[0]}") for name in found)


def test_those_of_extras_find_a_record_that_begins_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (extras,) = map(ParserVectors.load, EXTRAS)
    assert len(extras.vectors) > 100 and extras.failing_names() == []
    monkeypatch.setattr(RecordStart, "steps", lambda self, body, at, end: iter([None]))
    assert any(name.startswith("records ") for name in extras.failing_names())
    monkeypatch.setattr(cri, "STREAMS", (b"stdout",))
    assert any(name.startswith("container ") for name in extras.failing_names())


@pytest.mark.parametrize("content", [None, "{", "{}", '{"rules": [["rules/1-x", "{}"]]}'])
def test_kept_results_that_cannot_be_read_are_said(
    content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if content is not None:
        (tmp_path / f"{PARSER.parser}.json").write_text(content)
    monkeypatch.setattr(parser_check, "FOLDER", tmp_path)
    with pytest.raises(
        Finding,
        match=r"1\.json, the reference results of parser 1, cannot be read: .*reinstall Hourmark",
    ):
        check_parser()


@pytest.mark.slow
def test_a_service_that_parses_otherwise_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_payload, "_decode", json.loads)
    with pytest.raises(Finding) as found:
        run(
            Config(service={"state_dir": tmp_path / "state"}),
            lambda url: pytest.fail(f"it serves at {url}"),
            Config,
        )
    assert found.value.exit_code != 0
    message = str(found.value)
    for named in (
        "parser 1",
        "vectors/1.json",
        "'json ",
        "msgspec ",
        "google-re2 ",
        "Python ",
        "Install the versions listed in requirements.lock",
    ):
        assert named in message
    assert not (tmp_path / "state").exists(), "nothing was begun"


@pytest.mark.slow
def test_keeping_vectors_is_reproducible_and_never_replaces(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep_parser_vectors.main(tmp_path)
    assert "next step" in capsys.readouterr().out
    (file,) = tmp_path.iterdir()
    content = json.loads(file.read_text())
    assert file.read_text() == keep_parser_vectors.rendered(keep_parser_vectors.made())
    assert ParserVectors(content).failing_names() == []
    names = [vector["name"] for vector in content["vectors"]]
    assert len(set(names)) == len(names) > 300
    with pytest.raises(UsageError, match=r"its results never change"):
        keep_parser_vectors.main(tmp_path)
