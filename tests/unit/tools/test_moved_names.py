"""`tools/moved_names.py`: what scripts outside the repository use to find a module that moved."""

from __future__ import annotations

import importlib.util

import pytest
from tools.moved_names import new_name, rewritten, table


def test_every_module_that_is_named_as_new_is_there() -> None:
    def exists(name: str) -> bool:
        parent = name.rpartition(".")[0]
        try:
            if importlib.util.find_spec(name) is not None:
                return True
        except ModuleNotFoundError:
            pass
        return bool(parent) and exists(parent)

    assert table()
    assert [new for new in table().values() if not exists(new)] == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("hourmark_infra.judge.cli.judge", "hourmark_verify.judge.cli.judge"),
        ("hourmark.testing.stack", "hourmark.testing.stack"),
    ],
)
def test_a_name_is_that_of_its_longest_part_that_moved(old: str, new: str) -> None:
    assert new_name(old) == new


def test_a_script_is_rewritten_with_present_imports_and_own_names() -> None:
    script = (
        "from hourmark_infra.judge.cli import judge, x as y\n"
        "    from hourmark_infra import judge\n"
        "patch('hourmark_infra.judge.cli.judge')\n"
    )
    assert rewritten(script) == (
        "from hourmark_verify.judge.cli import judge\n"
        "from hourmark_verify.judge.cli import x as y\n"
        "    from hourmark_verify import judge\n"
        "patch('hourmark_verify.judge.cli.judge')\n"
    )
    assert rewritten(rewritten(script)) == rewritten(script)
