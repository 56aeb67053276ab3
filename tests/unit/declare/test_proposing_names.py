"""`hourmark init` finds names of several words and levels in any signs, in any order."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from tests.support.log_formats.model import WRITTEN_MS, day, message, pick
from tests.support.log_formats.scoring import PROGRAM_FIELDS

from hourmark_declare.proposing.file_sample import read_sample
from hourmark_declare.proposing.selection import Proposal, propose

NAMES: Final = ("DiskLocal (default)", "Order Service", "Jobs")
LEVELS: Final = {
    "capitals": ("INFO", "WARN", "ERROR"),
    "small letters": ("info", "warn", "error"),
    "single letters": ("I", "W", "E"),
    "several words": ("Fatal error", "Warning", "Notice"),
    "words of audits": ("Audit Success", "Audit Failure", "Information"),
    "some that are not known": ("info", "http", "warn"),
}
SIGNS: Final = ("<{}>", "[{}]", "({})", "|{}|", "{}:", "[{}]:", "[ {} ]")


def proposal(folder: Path, lines: list[str]) -> Proposal:
    log = folder / "a.log"
    log.write_text("\n".join(lines) + "\n")
    sample = read_sample(log)._replace(written_ms=WRITTEN_MS)
    return propose(sample, "app", zone="UTC", host="tailer-1")


@pytest.mark.parametrize("form", ["{level} {name}: {text}", "{name}: {level} {text}"])
@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("levels", LEVELS)
def test_the_level_and_the_name_are_found(
    tmp_path: Path, levels: str, sign: str, form: str
) -> None:
    lines = [
        f"{day(n)} "
        + form.format(
            level=sign.format(pick(n, *LEVELS[levels])),
            name=NAMES[(5 * n + n // 3) % 3],
            text=message(n),
        )
        for n in range(30)
    ]
    found = proposal(tmp_path, lines)
    first = found.examples[0].fields
    assert (found.fitting, first.get("level")) == (30, LEVELS[levels][0]), lines[0]
    assert NAMES[0] in [first.get(name) for name in PROGRAM_FIELDS], lines[0]


def test_pairs_before_the_level_are_fields_that_may_be_missing(tmp_path: Path) -> None:
    def pairs(n: int) -> str:
        job = f" class=Job jid={n}" if n % 3 else ""
        return f"pid=12 tid=a{n % 4}{job}{f' elapsed={n}.5' if n % 4 == 1 else ''}"

    lines = [f"{day(n)} {pairs(n)} {pick(n, 'INFO', 'WARN')}: {message(n)}" for n in range(40)]
    found = proposal(tmp_path, lines)
    assert [{**one.fields} for one in found.examples[:2]] == [
        {"pid": 12, "tid": "a0", "class": None, "jid": None, "elapsed": None}
        | {"level": "INFO", "message": "started"},
        {"pid": 12, "tid": "a1", "class": "Job", "jid": 1, "elapsed": 1.5}
        | {"level": "WARN", "message": "connection from 203.0.113.7 accepted"},
    ]


@pytest.mark.parametrize("others", [0, 8])
def test_a_level_behind_a_program_is_found_though_some_lines_have_none(
    tmp_path: Path, others: int
) -> None:
    def text(n: int) -> str:
        level = pick(n, "Warning", "Fatal error", "Notice")
        return message(7) if others and n % others == others - 1 else f"PHP {level}:  {message(n)}"

    found = proposal(tmp_path, [f"[{day(n)}] {text(n)}" for n in range(40)])
    first = {**found.examples[0].fields}
    assert first == {"program": "PHP", "level": "Warning", "message": "started"}
    assert found.fitting == 40


def test_a_host_and_a_program_before_a_colon_are_no_name_of_two_words(tmp_path: Path) -> None:
    lines = [
        f"{day(n)} INFO web-{n % 2 + 1} {pick(n, 'orders', 'jobs')}: {message(n)}"
        for n in range(40)
    ]
    found = proposal(tmp_path, lines)
    assert found.examples[0].host == "web-1"
    assert "orders" in found.examples[0].fields.values()
