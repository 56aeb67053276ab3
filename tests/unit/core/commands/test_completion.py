"""What a shell is offered after `hourmark`, and by which script it asks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from hourmark.cli import COMMANDS, root
from hourmark.commands.completion import SHELLS

if TYPE_CHECKING:
    from _typeshed.importlib import MetaPathFinderProtocol


def offered(*words: str) -> set[str]:
    """For the last word, as far as it was typed."""
    *before, typed = words
    return {
        item.value
        for item in ShellComplete(root, {}, "hourmark", "_HOURMARK_COMPLETE").get_completions(
            before, typed
        )
    }


@pytest.fixture
def tailer_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a log host: other rooms are not installed."""
    rooms = {module.partition(".")[0] for module, _ in COMMANDS.values()} - {
        "hourmark",
        "hourmark_producer",
    }

    class Finder:
        def __init__(self, others: Sequence[MetaPathFinderProtocol]) -> None:
            self._others = others

        def find_spec(
            self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
        ) -> ModuleSpec | None:
            if name.partition(".")[0] in rooms:
                return None
            return next(
                (spec for other in self._others if (spec := other.find_spec(name, path, target))),
                None,
            )

    monkeypatch.setattr(sys, "meta_path", [Finder(list(sys.meta_path))])
    for name in [name for name in sys.modules if name.partition(".")[0] in rooms]:
        monkeypatch.delitem(sys.modules, name)


def test_commands_are_offered_without_loading_any(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("hourmark_")]:
        monkeypatch.delitem(sys.modules, name)
    assert offered("") == set(COMMANDS)
    assert not [name for name in sys.modules if name.startswith("hourmark_") and "." in name]


@pytest.mark.usefixtures("tailer_alone")
def test_where_only_the_tailer_is_installed_its_commands_are_offered_and_no_error() -> None:
    assert offered("") == {"canary", "completion", "config", "rollback", "status", "tail"}
    assert offered("ta") == {"tail"}


def test_commands_and_options_below_a_command_are_offered() -> None:
    assert offered("config", "s") == {"show"}
    assert {"--once", "--drain"} <= offered("tail", "--")
    assert offered("completion", "") == set(SHELLS)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_asks_the_program_by_clicks_variable(shell: str) -> None:
    done = CliRunner().invoke(root, ["completion", shell])
    assert done.exit_code == 0
    assert f"_HOURMARK_COMPLETE={shell}_complete" in done.output
