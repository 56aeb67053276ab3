"""The command line: rooms that are not installed, and what they need."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from hourmark.cli import COMMANDS, LazyGroup, main, root
from hourmark.errors import Unavailable, UsageError


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Packages put in here are not installed."""
    names: set[str] = set()

    class Finder:
        def find_spec(self, name: str, *_: object) -> None:
            if name.partition(".")[0] in names:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    kept = dict(sys.modules)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    yield names
    sys.modules.update(kept)


def _forget(*packages: str) -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] in packages]:
        del sys.modules[name]


def test_a_room_that_is_not_installed_is_named_with_its_distribution(absent: set[str]) -> None:
    absent.add("hourmark_etl")
    _forget("hourmark_etl")
    found = CliRunner().invoke(root, ["bucket", "list"])
    assert isinstance(found.exception, UsageError)
    assert "pip install 'hourmark-etl'" in str(found.exception)


def test_what_a_command_loads_as_it_runs_is_named_with_the_extra(absent: set[str]) -> None:
    absent.add("pyspark")

    @click.command()
    def run() -> None:
        importlib.import_module("pyspark")

    module = type(sys)("hourmark_etl.played")
    module.run = run  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    _forget("pyspark")
    try:
        found = CliRunner().invoke(
            LazyGroup({"All": {"etl": ("hourmark_etl.played:run", "")}}), ["etl"]
        )
    finally:
        del sys.modules[module.__name__]
    assert isinstance(found.exception, UsageError)
    assert "`hourmark etl` needs pyspark" in str(found.exception)
    assert "pip install 'hourmark-etl[spark]'" in str(found.exception)


def test_all_commands_are_shown_whatever_is_installed(absent: set[str]) -> None:
    absent |= {module.partition(".")[0] for module, _ in COMMANDS.values()}
    said = CliRunner().invoke(root, ["--help"])
    assert said.exit_code == 0
    assert all(f"  {name} " in said.output for name in COMMANDS)


@pytest.mark.parametrize(
    ("called", "named"),
    [
        (None, "`hourmark serve`"),
        ("./hourmark", "`./hourmark serve`"),
        ("/a b/hm", "`'/a b/hm' serve`"),
    ],
)
def test_what_an_error_says_to_run_can_be_typed(
    called: str | None,
    named: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    @click.command()
    def fails() -> None:
        raise Unavailable("no service answers; is one running? (`hourmark serve`)")

    monkeypatch.setattr("hourmark.cli.root", fails)
    monkeypatch.setattr(sys, "argv", ["hourmark"])
    if called is not None:
        monkeypatch.setenv("HOURMARK_CALLED", called)
    with pytest.raises(SystemExit):
        main()
    assert f"is one running? ({named})" in capsys.readouterr().err
