"""README.md and docs/start: configurations and examples are valid. Commands are parsed by
test_commands.py and executed in tests/integration: test_first_bucket_page.py, test_start_pages.py,
test_demo.py and test_run.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.documents import ROOT, code_blocks, console_lines

from hourmark.config.loading import load_config
from hourmark.rules.event_types import read_declarations

START = ROOT / "docs" / "start"
# Run by tests of their own: the demo by test_demo.py, `init` and `run` by test_run.py; `test` by you.
OF_README = {
    "./hourmark demo",
    "./hourmark demo --lines /var/log/dpkg.log --keep",
    "./hourmark test",
    "./hourmark init /var/log/dpkg.log",
    "./hourmark run --once",
}


def blocks(page: str, language: str) -> list[str]:
    return code_blocks((START / page).read_text(), language)


def configurations() -> dict[str, str]:
    """The configuration files of three-machines.md by name."""
    named = {}
    for block in blocks("three-machines.md", "toml"):
        _, file = block.splitlines()[0].removeprefix("# ").split(": ")
        named[Path(file).name] = block
    return named


def test_each_command_of_the_readme_is_executed_by_a_test() -> None:
    assert set(console_lines((ROOT / "README.md").read_text())) == OF_README


def test_the_configurations_of_three_machines_are_valid(tmp_path: Path) -> None:
    assert list(configurations()) == ["etl.toml", "service.toml", "tailer.toml"]
    for name, block in configurations().items():
        (tmp_path / name).write_text(block)
        config = load_config(tmp_path / name)
        assert config.kafka.central is None, "one cluster for everything, as the page says"


def test_the_custom_type_is_valid(tmp_path: Path) -> None:
    (block,) = blocks("your-log-file.md", "toml")
    (tmp_path / "orders.toml").write_text(block)
    (tmp_path / "sources.toml").write_text(
        '[[source]]\nname = "orders"\nformat = "free"\ntypes = ["orders"]\n'
    )
    assert "orders" in [declared.name for declared in read_declarations(tmp_path).types]


@pytest.mark.parametrize("block", blocks("query-an-hour.md", "python"))
def test_an_example_of_a_query_is_python_with_its_file_name(block: str) -> None:
    compile(block, "example", "exec")
    name = block.splitlines()[0].removeprefix("# ")
    commands = console_lines((START / "query-an-hour.md").read_text())
    assert any(name in command.split() for command in commands)
