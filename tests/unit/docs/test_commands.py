"""Every command in README, CONTRIBUTING and all pages of docs/ exists and parses.

Decision records are excluded: they describe the commands of their time.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from tests.faults.chaos.__main__ import chaos
from tests.support.documents import (
    ROOT,
    console_lines,
    hourmark_arguments,
    resolved,
    simple_commands,
    without_blocks,
)

from hourmark.cli import root

DOCS = ROOT / "docs"
CONFIGURATION = ROOT / "examples" / "tailer.toml"
# Programs of others that documents call. A command of Hourmark is not one of them, however called.
OTHERS = frozenset(
    [
        "apt-get",
        "cat",
        "cd",
        "chmod",
        "chown",
        "cp",
        "curl",
        "date",
        "docker",
        "done",
        "echo",
        "export",
        "for",
        "git",
        "go",
        "grep",
        "gzip",
        "hdfs",
        "head",
        "java",
        "jq",
        "kadmin",
        "kafka-configs.sh",
        "kafka-console-consumer.sh",
        "kafka-consumer-groups.sh",
        "kafka-delete-records.sh",
        "kafka-leader-election.sh",
        "kafka-topics.sh",
        "kill",
        "kubectl",
        "logger",
        "ls",
        "mkdir",
        "mv",
        "node",
        "openssl",
        "pip",
        "podman",
        "podman-compose",
        "pre-commit",
        "printf",
        "psql",
        "pytest",
        "python",
        "python3",
        "rm",
        "sed",
        "seq",
        "sleep",
        "sort",
        "spark-class",
        "spark-submit",
        "sqlite3",
        "ssh",
        "sudo",
        "systemctl",
        "tail",
        "tar",
        "touch",
        "uv",
        "wc",
        "yarn",
    ]
)
CODE = re.compile(r"`([^`]+)`")
NO_FILE = re.compile(r"'(.+)': No such file or directory|'(.+)' does not exist")


def pages() -> list[Path]:
    decisions = DOCS / "internals" / "decisions"
    return [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted(file for file in DOCS.rglob("*.md") if decisions not in file.parents),
    ]


def mentioned(text: str) -> list[str]:
    """Commands named within a sentence or a table: they may leave out arguments."""
    return sorted(
        {
            re.sub(r"^(\./)?(hourmark )?", "hourmark ", " ".join(code.split()))
            for code in CODE.findall(without_blocks(text))
            if code.startswith(("hourmark ", "./hourmark ", "bucket "))
        }
    )


MODULES = sorted(
    {
        name
        for page in pages()
        for name in re.findall(r"python -m ((?:bench|tools)\.\w+)", page.read_text())
    }
)


def resolve(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command, also one of the fault tests, and the words after its name."""
    command, rest = resolved(words)
    if command.name == "chaos" and rest and not rest[0].startswith("-"):
        inner = chaos.get_command(click.Context(chaos), rest[0])
        assert inner is not None, words
        return inner, rest[1:]
    return command, rest


def parse(arguments: list[str]) -> None:
    """Parse a command line with all checks of its values, and run nothing.

    Raises:
        click.UsageError: The command line is invalid. A file that only its readers have is no error.
    """
    command, words = resolve(arguments)
    if command is root:
        return
    if "--config" in words:  # some commands read it as they parse
        words[words.index("--config") + 1] = str(CONFIGURATION)
    try:
        with command.make_context(command.name, list(words)):
            pass
    except click.BadParameter as error:
        file = NO_FILE.search(error.message)
        if file is None:
            raise
        present = str(ROOT / "README.md")
        name = file.group(1) or file.group(2)
        assert name != present
        parse([word.replace(name, present) for word in arguments])


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_console_block_parses(page: Path) -> None:
    for line in console_lines(page.read_text()):
        for words in simple_commands(line):
            arguments = hourmark_arguments(words)
            if arguments is None:
                assert Path(words[0]).name in OTHERS, line
                if words[:3] == [".venv/bin/python", "-m", "pytest"]:
                    paths = [word for word in words[3:] if "/" in word]
                    assert [path for path in paths if not (ROOT / path).exists()] == [], line
            else:
                parse(arguments)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_that_is_run_exists(name: str) -> None:
    path = ROOT / Path(*name.split(".")).with_suffix(".py")
    assert "__main__" in path.read_text()


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_that_is_mentioned_exists_with_its_options(page: Path) -> None:
    for line in mentioned(page.read_text()):
        words = shlex.split(line)[1:]
        if words[0] == "--help" or words[0].isupper():  # `hourmark COMMAND --help`
            continue
        try:
            command, arguments = resolve(words)
        except AssertionError as error:
            assert str(error).endswith("is a group, and no command"), line
            continue
        if command.name == "bench":  # passes its options on; the benchmark's own parser knows them
            known_to_benchmarks(arguments)
            continue
        if command.context_settings.get("ignore_unknown_options"):
            continue  # passes its options on to another program
        known = {"--help", "--version"} | {
            option for parameter in command.params for option in parameter.opts
        }
        assert {word for word in arguments if word.startswith("--")} <= known, line
        done = CliRunner().invoke(command, ["--help"])
        assert done.exit_code == 0 and "Usage:" in done.stdout


def known_to_benchmarks(arguments: list[str]) -> None:
    source = "".join(file.read_text() for file in (ROOT / "bench").glob("*.py"))
    for name in arguments[:1]:
        is_placeholder = name.isupper()  # `hourmark bench NAME`
        assert is_placeholder or name.startswith("-") or (ROOT / "bench" / f"{name}.py").exists(), (
            name
        )
    options = {word for word in arguments if word.startswith("--")} - {"--help"}
    assert [option for option in options if f'"{option}"' not in source] == []


def test_commands_are_found() -> None:
    internals = [page for page in pages() if page.parent == DOCS / "internals"]
    lines = [line for page in internals for line in console_lines(page.read_text())]
    named = {line for page in internals for line in mentioned(page.read_text())}
    assert len(lines) >= 5 and len(named) > 20 and len(MODULES) >= 5


def test_commands_are_found_in_blocks() -> None:
    text = "1. a\n\n   ```console\n   $ hourmark tail \\\n       --drain\n   drained\n   ```\n"
    assert [line.split() for line in console_lines(text)] == [["hourmark", "tail", "--drain"]]
    assert simple_commands(
        "A=1 hourmark up > log & curl -s 'a b' | hourmark trace --from -; do x"
    ) == [
        ["hourmark", "up"],
        ["curl", "-s", "a b"],
        ["hourmark", "trace", "--from", "-"],
        ["x"],
    ]
    assert hourmark_arguments(["ssh", "web-1", "hourmark", "tail", "status"]) == ["tail", "status"]
    assert hourmark_arguments(["docker", "compose", "run", "--rm", "operator", "bucket", "ls"]) == [
        "bucket",
        "ls",
    ]
    for line in (
        "curl http://127.0.0.1:8780",
        "sudo install -o hourmark -m 0400 web.token /etc/hourmark/token",
        "kubectl -n hourmark create secret generic ledger",
        "sudo ln -s /opt/hourmark/hourmark /usr/local/bin/hourmark",
    ):
        assert hourmark_arguments(line.split()) is None
    for line in (
        "sudo -u hourmark-etl hourmark types list",
        "runuser -u hourmark-etl -- hourmark types list",
        "kubectl exec etl-0 -- /opt/hourmark/hourmark types list",
    ):
        assert hourmark_arguments(line.split()) == ["types", "list"]


@pytest.mark.parametrize(
    "line",
    [
        "hourmark bucket lst",
        "hourmark bucket ls --stat open",
        "hourmark bucket ls --state opened",
        "hourmark types try --lines missing.log --sourc app",
        "hourmark tail extra",
    ],
)
def test_a_wrong_command_is_noticed(line: str) -> None:
    with pytest.raises((click.UsageError, AssertionError)):
        parse(shlex.split(line)[1:])
