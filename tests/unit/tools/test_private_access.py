"""Tests use public interfaces: `tools/private_access.py` counts where they do not."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

import pytest
from tools.private_access import PRODUCT, ROOT, accesses, all_accesses, private_names

# These only go down. A test that needs more of the product than its public interface offers gets a
# seam: a constructor parameter with a default, a port, a fault point.
TESTS_MAX = 113
PLANTED_FAULTS_MAX = 24

_DEFINES = ast.parse("def _hide(): ...\nclass Kept:\n    def __init__(self): self._kept = 1\n")


@pytest.mark.slow
def test_no_more_tests_use_private_names_than_before() -> None:
    found = all_accesses()
    tests = [place for place in found if not place.is_planted]
    planted = [place for place in found if place.is_planted]
    assert len(tests) <= TESTS_MAX, "python -m tools.private_access --list"
    assert len(planted) <= PLANTED_FAULTS_MAX, "python -m tools.private_access --list"


def test_all_folders_of_the_product_are_read() -> None:
    assert [folder for folder in PRODUCT if not any((ROOT / folder).rglob("*.py"))] == []


@pytest.mark.parametrize(
    ("fault", "kind", "name"),
    [
        ("kept._kept", "attribute", "kept._kept"),
        ("self.kept._kept", "attribute", "self.kept._kept"),
        ("kept._kept = 2", "attribute", "kept._kept"),
        ("from hourmark.kept import _hide", "import", "_hide"),
        ("from hourmark.kept import _hide as hide", "import", "_hide"),
        ("monkeypatch.setattr(kept, '_hide', None)", "patch", "kept._hide"),
        ("setattr(kept, '_kept', 1)", "patch", "kept._kept"),
        ("getattr(kept, '_kept')", "patch", "kept._kept"),
        ("mock.patch.object(kept, '_hide')", "patch", "kept._hide"),
        ("monkeypatch.setattr('hourmark.kept._hide', 1)", "patch", "hourmark.kept._hide"),
        (
            "put('hourmark_x.kept._Hidden.close', 1)\nclass _Hidden: ...",
            "patch",
            "hourmark_x.kept._Hidden.close",
        ),
    ],
)
def test_a_planted_access_is_found(fault: str, kind: str, name: str) -> None:
    tree = ast.parse(fault)
    found = list(accesses("tests/unit/test_it.py", tree, private_names([_DEFINES, tree])))
    assert [(place.kind, place.name, place.line) for place in found] == [(kind, name, 1)]


@pytest.mark.parametrize(
    "allowed",
    [
        "self._kept",
        "cls._kept",
        "os._exit(1)",
        "two._replace(a=1)",
        "kept.__class__",
        "class Own:\n    def copy(self, of):\n        self._kept = of._kept",
        "path / '_kept'",
        "from hourmark import kept as _kept",
        "monkeypatch.setattr(kept, 'hide', None)",
        "put('hourmark.kept.hide', None)",
    ],
)
def test_what_is_public_or_its_own_is_not_counted(allowed: str) -> None:
    tree = ast.parse(allowed)
    assert list(accesses("tests/unit/test_it.py", tree, private_names([_DEFINES]))) == []


def test_planted_faults_are_counted_separately(tmp_path: Path) -> None:
    source = dedent("""
        def plant(kept):
            kept._kept = 1
    """)
    (tmp_path / "etl").mkdir()
    (tmp_path / "etl" / "kept.py").write_text(ast.unparse(_DEFINES))
    for path in (
        "tests/unit/etl/ids/test_ids.py",
        "tests/simulation/test_mutants_of_worlds.py",
        "tests/support/tailer_model/planted.py",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(source)
    assert {place.area: place.is_planted for place in all_accesses(tmp_path)} == {
        "unit/etl": False,
        "simulation": True,
        "support": True,
    }
