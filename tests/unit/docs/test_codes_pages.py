"""The pages of codes in docs/reference name each code that the product has, and no other.

Whether the commands in them exist: test_commands.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from tests.support.documents import ROOT, all_commands

from hourmark import errors
from hourmark.records.dead_letters import DeadLetterReason
from hourmark.records.wire import TOPIC_UNAVAILABLE
from hourmark_delivery_service import errors as service_errors
from hourmark_delivery_service.edge.responses import HTTP_ERRORS
from hourmark_etl.model import ClosingPhase
from hourmark_etl.operators.buckets.exits import BucketExit

REFERENCE = ROOT / "docs" / "reference"
SERVICE = ROOT / "delivery_service" / "hourmark_delivery_service"
EXIT_CODES = (REFERENCE / "exit-codes.md").read_text()
# of errors whose class sets the code
BY_CLASS = {"BatchRejected": "rejected", "TooManyRequests": "rate"}


def anchors(page: str) -> list[str]:
    """Codes with a section of their own, in the page's order."""
    return re.findall(r"^### (\S+)$", (REFERENCE / page).read_text(), re.MULTILINE)


def section(page: str, code: str) -> str:
    (found,) = re.findall(
        rf"^### {code}\n\n(.*?)(?=^#|\Z)",
        (REFERENCE / page).read_text(),
        re.MULTILINE | re.DOTALL,
    )
    return str(found)


def http_codes(text: str) -> Iterator[tuple[str, int]]:
    """Codes of errors that a module raises, with their status."""
    for node in ast.walk(ast.parse(text)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        name = "BadRequest" if node.func.id == "bad_request" else node.func.id
        error = getattr(service_errors, name, None)
        if not (isinstance(error, type) and issubclass(error, service_errors.ServiceError)):
            continue
        if name in BY_CLASS:
            yield BY_CLASS[name], error.status
        elif isinstance(node.args[0], ast.Constant):
            yield node.args[0].value, error.status  # type: ignore[misc]  # a text
        elif isinstance(node.args[0], ast.Name) and node.args[0].id == "TOPIC_UNAVAILABLE":
            yield TOPIC_UNAVAILABLE, error.status


def codes_of_the_service() -> dict[str, int]:
    found = {
        code: status
        for file in SERVICE.rglob("*.py")
        if file.name != "errors.py"
        for code, status in http_codes(file.read_text())
    }
    return found | {code: status for status, (code, *_) in HTTP_ERRORS.items()} | {"refused": 404}


def test_each_code_of_the_http_api_has_a_section_below_its_status() -> None:
    documented, statuses = {}, ""
    for line in (REFERENCE / "error-codes.md").read_text().splitlines():
        if line.startswith("## "):
            statuses = line
        elif line.startswith("### "):
            documented[line[4:]] = statuses
    codes = codes_of_the_service()
    assert len(codes) > 30
    assert documented.keys() == codes.keys()
    assert [code for code, status in codes.items() if str(status) not in documented[code]] == []


def test_codes_are_found_in_code() -> None:
    text = """
raise BadRequest("one", "x", "y")
with bad_request("two", "y"): pass
raise TooManyRequests("x", 3)
raise ServiceUnavailable(TOPIC_UNAVAILABLE, "x")
raise ValueError("none")
"""
    expected = {("one", 400), ("two", 400), ("rate", 429), ("topic_unavailable", 503)}
    assert set(http_codes(text)) == expected


def test_each_reason_of_dead_letters_has_a_section() -> None:
    found = anchors("dead-letter-reasons.md")
    assert sorted(found) == sorted(reason.value for reason in DeadLetterReason)


def test_each_phase_of_closing_has_a_section() -> None:
    assert anchors("closing-phases.md") == [phase.value for phase in ClosingPhase]


@pytest.mark.parametrize(
    ("page", "code"),
    [
        (page, code)
        for page in ("error-codes.md", "dead-letter-reasons.md", "closing-phases.md")
        for code in anchors(page)
    ],
)
def test_a_section_says_what_a_code_means(page: str, code: str) -> None:
    assert len(section(page, code).split()) > 8


def test_the_state_of_a_bucket_has_a_row_for_each_code() -> None:
    table = EXIT_CODES.partition("## State of a bucket")[2].partition("## When")[0]
    rows = dict(re.findall(r"^\| (\d) \| (.*) \|$", table, re.MULTILINE))
    assert rows.keys() == {str(code.value) for code in BucketExit}
    for code in (BucketExit.PROVED, BucketExit.TIMED_OUT, BucketExit.FORCED):
        assert f"`{code.name.lower()}`" in rows[str(code.value)]


def test_the_codes_of_all_commands_are_those_of_the_errors() -> None:
    table = EXIT_CODES.partition("## All commands")[2].partition("## ")[0]
    rows = re.findall(r"^\| (\d) \|", table, re.MULTILINE)
    codes = {
        error.exit_code
        for error in vars(errors).values()
        if isinstance(error, type) and issubclass(error, errors.HourmarkError)
    }
    assert rows == ["0", *map(str, sorted(codes))]


def test_each_command_whose_help_has_an_exit_code_is_in_a_table() -> None:
    rows = "\n".join(line for line in EXIT_CODES.splitlines() if line.startswith("|"))
    named = {" ".join(code.split()[1:]) for code in re.findall(r"`(hourmark [^`]*)`", rows)}
    named |= {f"bucket {word}" for word in ("show", "wait")}
    told = [
        words
        for words, command in all_commands()
        if re.search(
            r"exit code (is|shows)|exits with|Exit 1", " ".join((command.help or "").split()), re.I
        )
    ]
    assert len(told) > 15
    assert [words for words in told if not any(n.startswith(words) for n in named)] == []
