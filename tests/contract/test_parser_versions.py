"""What parsing gives never changes: zone data as it was kept, and every parser's results as they were."""

from __future__ import annotations

import importlib.metadata
import json
import zipfile
from pathlib import Path

import pytest

from delivery_service.parsing.parsers import PARSERS
from delivery_service.parsing.zones import FOLDER, zone_versions
from hourmark.errors import UsageError
from hourmark.rules import PARSER
from tools import keep_zone_data
from tools.keep_zone_data import digest_of, installed_zones, zipped

VECTORS = Path(__file__).parent / "vectors"


def kept_zones(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_new_revisions_name_a_parser_and_zone_data_that_are_at_hand() -> None:
    assert PARSER.parser == max(PARSERS)
    assert PARSER.zones == max(zone_versions(), key=lambda version: [int(part) for part in version.split(".")])


def test_zone_data_is_as_it_was_kept() -> None:
    kept = {version: digest_of(kept_zones(FOLDER / f"{version}.zip")) for version in zone_versions()}
    assert kept == json.loads((VECTORS / "zone_data.json").read_text()), "a version that is named never changes, nor goes"


def test_zone_data_is_that_of_the_tzdata_package() -> None:
    installed = importlib.metadata.version("tzdata")
    if installed not in zone_versions():
        pytest.skip(f"tzdata {installed} is installed, and not kept")
    assert kept_zones(FOLDER / f"{installed}.zip") == installed_zones()


def test_keeping_zone_data_is_reproducible_and_never_replaces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, digests = tmp_path / "zone_data", tmp_path / "zone_data.json"
    keep_zone_data.main(folder, digests)
    assert "hourmark.rules.PARSER" in capsys.readouterr().out
    (file,) = folder.iterdir()
    zones = kept_zones(file)
    assert file.read_bytes() == zipped(dict(reversed(zones.items())))
    assert json.loads(digests.read_text()) == {file.stem: digest_of(zones)}
    before = file.read_bytes()
    with pytest.raises(UsageError, match="never written again"):
        keep_zone_data.main(folder, digests)
    assert file.read_bytes() == before


def test_a_zone_that_is_altered_missing_or_renamed_is_found() -> None:
    zones = {"A": b"TZif1", "B": b"TZif2"}
    others = [{"A": b"TZif1"}, {"A": b"TZif2", "B": b"TZif1"}, {"A": b"TZif1", "C": b"TZif2"}, {"A": b"TZif1B", "B": b"TZif2"}]
    assert digest_of(zones) not in {digest_of(other) for other in others}
    assert digest_of(zones) == digest_of(dict(reversed(zones.items())))
