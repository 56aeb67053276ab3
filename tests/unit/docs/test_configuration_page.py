"""docs/reference/configuration.md is what the settings say of themselves, and every setting says
something.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools.configuration_page import PAGE, page, settings_without_description

from hourmark.commands.config_show import settings_in_force
from hourmark.config.loading import Config, load_config

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_is_what_the_generator_gives() -> None:
    assert PAGE.read_text() == page(), "run `python -m tools.configuration_page`"


def test_every_setting_has_a_description() -> None:
    assert settings_without_description() == []


def test_every_row_has_as_many_cells_as_its_header() -> None:
    tables = re.findall(r"(?:^\|.*\n)+", page(), re.MULTILINE)
    assert len(tables) > 10
    for table in tables:
        header, line, *rows = table.splitlines()
        assert rows and {row.count("|") for row in rows} == {header.count("|")} == {line.count("|")}


def test_every_variable_of_the_page_is_one_that_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = re.findall(
        r"^\| `\w+` \| [^|]* \| `(.*?)`[^|]* \| `(HOURMARK_\w+)`", page(), re.MULTILINE
    )
    assert len(rows) > 50
    for default, variable in rows:
        monkeypatch.setenv(variable, default.strip('"'))
    read = {
        setting.where for setting in settings_in_force(None, {}) if setting.source == "environment"
    }
    assert read == {variable for _, variable in rows}


@pytest.mark.parametrize(
    "file", sorted((ROOT / "examples").glob("*.toml")), ids=lambda file: file.name
)
def test_an_example_is_a_right_configuration(file: Path) -> None:
    assert load_config(file) != Config()
