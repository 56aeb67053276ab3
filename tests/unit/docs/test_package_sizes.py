"""A package has at most 20 modules and packages on one level, so that it can be read as a list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parents[3]
ENTRIES_MAX: Final = 20


def entries(paths: Iterable[Path]) -> Counter[Path]:
    """The number of modules and subpackages that each package contains directly."""
    modules = [path for path in paths if path.name != "__init__.py"]
    packages = {path.parent for path in modules}
    inner = {folder for folder in packages if folder.parent in packages}
    return Counter([path.parent for path in [*modules, *inner]])


def test_a_package_has_at_most_20_entries() -> None:
    paths = [path for path in ROOT.glob("*/hourmark*/**/*.py") if path.is_file()]
    assert len(paths) > 300
    assert {str(p): n for p, n in entries(paths).items() if n > ENTRIES_MAX} == {}


def test_modules_and_packages_are_counted_once_each() -> None:
    root = Path("distribution/package")
    paths = [root / "__init__.py", root / "one.py", root / "inner" / "two.py"]
    assert entries(paths) == {root: 2, root / "inner": 1}
