"""Each class name has one meaning in the product."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[3]


def duplicates(paths: Iterable[Path]) -> dict[str, list[str]]:
    """Files by class name, of public classes that are defined at module level in several files."""
    found = defaultdict[str, list[str]](list)
    for path in paths:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path))
    return {name: files for name, files in found.items() if len(files) > 1}


def product() -> list[Path]:
    return sorted(path for path in ROOT.glob("*/hourmark*/**/*.py") if path.is_file())


def test_each_class_name_is_used_once() -> None:
    assert len(product()) > 300
    assert duplicates(product()) == {}


def test_a_name_that_is_used_twice_is_found(tmp_path: Path) -> None:
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    one.write_text("class Site:\n    pass\n\n\nclass _Own:\n    pass\n")
    other.write_text("class Site:\n    pass\n\n\nclass _Own:\n    pass\n")
    assert duplicates([one, other]) == {"Site": [str(one), str(other)]}
