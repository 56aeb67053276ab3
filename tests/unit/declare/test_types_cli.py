"""`hourmark types check`: the examples are well declared, and each wrong declaration is refused by
file and reason.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from hourmark.config.groups import ParsingSettings
from hourmark.config.loading import load_config
from hourmark.errors import TypeFileError, UsageError
from hourmark.rules.change import check_change
from hourmark.rules.event_types import (
    DEAD_LETTERS,
    Declarations,
    EventType,
    Source,
    read_declarations,
)
from hourmark.rules.revision import Rules, TypeVersion
from hourmark_declare.cli import types

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def check(folder: Path) -> dict[str, list[str]]:
    result = CliRunner().invoke(
        types, ["check", "--dir", str(folder), "--json"], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    found: dict[str, list[str]] = json.loads(result.stdout)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLES / "types", tmp_path / "types"))


def test_the_examples_are_well_declared() -> None:
    assert check(EXAMPLES / "types") == {
        "types": ["app-log", "dead-letters", "kafka-log", "page-viewed"],
        "sources": ["app", "kafka"],
    }
    assert (
        load_config(EXAMPLES / "tailer.toml").tailer.sources[0].name
        in check(EXAMPLES / "types")["sources"]
    )


@pytest.mark.parametrize(
    ("file", "before", "after", "said"),
    [
        (
            "kafka-log.toml",
            "(?P<level>",
            "(?P<level>(",
            "kafka-log cannot be used: line.pattern: RE2 does not accept it: missing",
        ),
        (
            "kafka-log.toml",
            "(?P<level>",
            "(?'level'",
            "line.pattern: RE2 does not accept it: invalid perl operator",
        ),
        (
            "kafka-log.toml",
            "(?P<level>",
            "(?=x)(?P<level>",
            "line.pattern: RE2 does not accept it: invalid perl operator",
        ),
        ("kafka-log.toml", "(?P<level>", "(?P<nolevel>", "none of its fields"),
        ("kafka-log.toml", "(?P<time>", "(?P<when>", "and vice versa"),
        ("page-viewed.toml", '"page-viewed"', '"other"', "must have the same name"),
        ("page-viewed.toml", 'type = "long"', 'type = "lang"', "Avro"),
        ("page-viewed.toml", "partitions = 1", "partition = 1", "partition"),
        ("page-viewed.toml", "partitions = 1", "partitions = 0", "partitions"),
        ("page-viewed.toml", "[line]", "[line", "not valid TOML"),
        ("sources.toml", '"app-log"]', '"nothing"]', "which no file declares"),
        ("sources.toml", 'format = "free"', 'format = "rfc5424"', "patterns require format 'free'"),
        ("sources.toml", 'catch_all = "kafka-log"', 'catch_all = "page-viewed"', "catch_all"),
    ],
)
def test_a_wrong_declaration_is_refused_with_its_reason(
    folder: Path, file: str, before: str, after: str, said: str
) -> None:
    text = (folder / file).read_text()
    assert before in text
    (folder / file).write_text(text.replace(before, after))
    with pytest.raises(TypeFileError, match=said):
        check(folder)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            r"""pattern = '\(?P<time>\d+ (?P<x>.*)'
time_format = "%H"
[[fields]]
name = "x"
type = "string" """,
            "t cannot be used: line.pattern: it has no group `time`",
        ),
        (
            r"""pattern = '(?P<time>\d+)(?P<x>.*)'
time_format = "%Q"
[[fields]]
name = "x"
type = "string" """,
            "t cannot be used: line.time_format: the directive %Q",
        ),
    ],
)
def test_a_pattern_that_can_never_be_used_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "t.toml").write_text(f'name = "t"\n[line]\npayload = "pattern"\n{text}\n')
    with pytest.raises(TypeFileError, match=said):
        check(tmp_path)


@pytest.mark.parametrize(
    ("pattern", "twice"),
    [
        (r"a=(?P<line>\w+)|b=(?P<line>\w+)", True),
        (r"a=(?P<line>\w+)|b=(?<line>\w+)", True),
        (r"[(?P<line>]*(?P<line>\w+)", False),
        (r"[]\](?P<line>]*(?P<line>\w+)", False),
        (r"\(?P<line>(?P<line>\w+)", False),
        (r"\Q(?P<line>\E(?P<line>\w+)", False),
        (r"\\(?P<line>x)|(?P<line>\w+)", True),
    ],
)
def test_a_group_that_is_named_twice_is_refused_because_re2_knows_the_first_alone(
    tmp_path: Path, pattern: str, twice: bool
) -> None:
    lines = [
        'name = "t"',
        "[line]",
        'payload = "pattern"',
        'time = "observed"',
        f"pattern = '{pattern}'",
        "[[fields]]",
    ]
    (tmp_path / "t.toml").write_text(
        "\n".join([*lines, 'name = "line"', 'type = ["null", "string"]', ""])
    )
    if twice:
        with pytest.raises(TypeFileError, match="has two groups named line"):
            check(tmp_path)
    else:
        assert "t" in check(tmp_path)["types"]


def test_groups_may_be_named_in_either_of_re2s_ways(folder: Path) -> None:
    file = folder / "kafka-log.toml"
    file.write_text(file.read_text().replace("(?P<", "(?<"))
    assert "kafka-log" in check(folder)["types"]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TypeFileError, match="nowhere"):
        read_declarations(tmp_path / "nowhere")


def _rules(*types: EventType) -> Rules:
    sources = {"app": Source(name="app", types=["click"])}
    return Rules(
        sequence=1,
        types={t.name: TypeVersion(t, 1) for t in (*types, DEAD_LETTERS)},
        sources=sources,
        parsing=ParsingSettings(),
    )


def test_types_in_force_are_not_dropped_by_accident() -> None:
    click = EventType(name="click", fields=[])
    with pytest.raises(UsageError, match="app, click: in force, but not declared here"):
        check_change(_rules(click), Declarations([DEAD_LETTERS], []), 3600, may_remove=False)
    check_change(_rules(click), Declarations([DEAD_LETTERS], []), 3600, may_remove=True)
    check_change(None, Declarations([DEAD_LETTERS], []), 3600, may_remove=False)


def test_the_bucket_length_is_fixed() -> None:
    with pytest.raises(UsageError, match="the bucket length of a storage root cannot be changed"):
        check_change(_rules(), Declarations([DEAD_LETTERS], []), 60, may_remove=True)


def test_a_type_that_parquet_cannot_express_is_refused_only_with_that_format(folder: Path) -> None:
    declared = """
name = "choice"
fields = [{ name = "value", type = ["string", "long"] }]
"""
    file = folder / "choice.toml"
    file.write_text(declared)
    assert "choice" in check(folder)["types"]
    file.write_text(f'format = "avro+parquet"\n{declared}')
    with pytest.raises(TypeFileError) as refused:
        read_declarations(folder)
    assert "choice.toml" in str(refused.value)
    assert "field value: Parquet has no type for the union of string, long" in str(refused.value)
    file.write_text(f'format = "avro+parquet"\n{declared.replace("string", "null")}')
    (choice,) = (t for t in read_declarations(folder).types if t.name == "choice")
    assert choice.format == "avro+parquet"
