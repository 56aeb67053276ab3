"""docs/reference/{event-types,line-formats,syslog-formats}.md: each example of a form is well
declared, and its lines become events.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from tests.support.documents import ROOT

from hourmark.rules.event_types import read_declarations
from hourmark_declare.line_trial import LineTrial, ReadContext, select_source

PAGES = ("event-types", "line-formats", "syslog-formats")
EXAMPLES = [
    example
    for page in PAGES
    for example in re.findall(
        r"```toml\n((?:(?!```).)*)```\s+```text\n(.*?)```",
        (ROOT / "docs" / "reference" / f"{page}.md").read_text(),
        re.DOTALL,
    )
]


def test_there_is_an_example_of_each_form() -> None:
    assert len(EXAMPLES) >= 8
    told = "".join(toml for toml, _ in EXAMPLES)
    for form in (
        '"syslog"',
        '"rfc5424"',
        '"free"',
        '"json"',
        '"logfmt"',
        '"tsv"',
        "[[line.redact]]",
    ):
        assert form in told


@pytest.mark.parametrize(
    ("toml", "lines"), EXAMPLES, ids=[toml.splitlines()[0] for toml, _ in EXAMPLES]
)
def test_an_example_does_what_is_said(toml: str, lines: str, tmp_path: Path) -> None:
    sources = toml
    if "[[source]]" not in toml:
        name = tomllib.loads(toml)["name"]
        (source_format,) = re.findall(r'format = "(\w+)"', toml.splitlines()[0])
        (tmp_path / f"{name}.toml").write_text(toml)
        sources = f'[[source]]\nname = "x"\nformat = "{source_format}"\ntypes = ["{name}"]\n'
    (tmp_path / "sources.toml").write_text(sources)
    declared = read_declarations(tmp_path)
    place = ReadContext(
        observed_at_ms=1_795_262_400_000, zone="UTC", host="web-1"
    )  # 2026-11-21T12:00:00Z
    tried = list(
        LineTrial.from_declarations(declared).parse_lines(
            select_source(declared, None, None).name, lines.encode().splitlines(), place
        )
    )
    assert [(one.reason, one.detail) for one in tried] == [(None, None)] * lines.count("\n")
    assert not re.search("4111|ann", str([one.fields for one in tried])) or "redact" not in toml
