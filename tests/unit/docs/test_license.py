"""Each room names its license, and carries its whole text: it is installed apart from the
others.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MEMBERS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["workspace"]["members"]


@pytest.mark.parametrize("room", MEMBERS)
def test_a_room_carries_the_license_that_it_names(room: str) -> None:
    project = tomllib.loads((ROOT / room / "pyproject.toml").read_text())["project"]
    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])
    carried = ROOT / room / "LICENSE"
    assert not carried.is_symlink()  # a source distribution would hold a link to nothing
    assert carried.read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert (
        "Version 2.0, January 2004" in carried.read_text()
        and "END OF TERMS AND CONDITIONS" in carried.read_text()
    )
