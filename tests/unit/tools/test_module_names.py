"""Python puts the folder of a script first in its search path, so a module in this folder with the
name of a standard module replaces it in the whole process.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[3]
_FOLDERS_OF_SCRIPTS = ("bench", "etl", "examples", "tests/support", "tools")


def hiding(folder: Path) -> Iterator[str]:
    """Names of modules and packages in this folder that hide a standard one."""
    for path in folder.iterdir():
        importable = path.suffix == ".py" or (path.is_dir() and any(path.glob("*.py")))
        if importable and path.stem in sys.stdlib_module_names:
            yield path.name


@pytest.mark.parametrize("folder", _FOLDERS_OF_SCRIPTS)
def test_no_module_beside_a_script_hides_a_standard_one(folder: str) -> None:
    assert not list(hiding(_ROOT / folder))


def test_a_module_that_hides_a_standard_one_is_found(tmp_path: Path) -> None:
    (tmp_path / "http.py").touch()
    (tmp_path / "email").mkdir()
    (tmp_path / "email" / "parser.py").touch()
    (tmp_path / "json").mkdir()
    assert sorted(hiding(tmp_path)) == ["email", "http.py"]
