"""Generate docs/internals/evidence-*.md from docs/internals/evidence/*.toml.

Run `python -m tools.evidence_pages` after each change of a fault, its guarantee or its tests.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from tools.markdown import wrap

FOLDER: Final = Path(__file__).resolve().parents[1] / "docs" / "internals"
Result = Literal["recovered", "refused", "reported"]


class Fault(BaseModel):
    """A fault and what is known about it.

    Attributes:
        fault: What happens. This and the following texts are complete sentences.
        guarantee: What Hourmark guarantees although the fault occurs.
        detected_by: What detects the fault.
        result: How the fault ends; the page `guarantees-and-evidence` defines the words.
        outcome: Details of the result, such as the status or grade; may be empty.
        tests: Tests that inject the fault, as `path` or `path::test`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    fault: str
    guarantee: str
    detected_by: str
    result: Annotated[list[Result], Field(min_length=1)]
    outcome: str = ""
    tests: Annotated[list[str], Field(min_length=1)]


class Subject(BaseModel):
    """The faults of one page.

    Attributes:
        title: The title of the page.
        subject: What the faults affect, such as `the brokers of Kafka`.
        note: A paragraph about all faults of the page; may be empty.
        fault: The faults, in the order of the page.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    title: str
    subject: str
    note: str = ""
    fault: list[Fault]


def pages() -> dict[Path, str]:
    """Return the text of each generated page, by its path."""
    return {
        FOLDER / f"evidence-{file.stem}.md": _page(
            file, Subject.model_validate(tomllib.loads(text))
        )
        for file in sorted((FOLDER / "evidence").glob("*.toml"))
        for text in [file.read_text()]
    }


def _page(file: Path, subject: Subject) -> str:
    lines = [
        f"# {subject.title}",
        "",
        wrap(
            f"This page lists faults that affect {subject.subject}. For each fault, it states what "
            "Hourmark guarantees, what detects the fault, how the fault ends, and which tests inject "
            "it. It is written for contributors and for people who evaluate Hourmark."
        ),
        "",
        wrap(
            "The column *result* states how a fault ends. [Guarantees and "
            "evidence](guarantees-and-evidence.md) explains the possible results in more detail:"
        ),
        "",
        "- *recovered*: Hourmark continues automatically.",
        "- *refused*: A component rejects a request, does not start or waits, and states the reason.",
        "- *reported*: An alarm, a message, a counter or a bucket's marker shows the problem.",
        "",
        wrap(
            "Do not edit this page. The command `python -m tools.evidence_pages` generates it from "
            f"`docs/internals/evidence/{file.name}`. To change the page, edit the TOML file and run "
            "the command again."
        ),
        *(["", wrap(subject.note)] if subject.note else []),
        "",
        "## Faults",
        "",
        "| fault | guarantee | detected by | result | tests |",
        "|---|---|---|---|---|",
        *map(_row, subject.fault),
    ]
    return "\n".join(lines) + "\n"


def _row(fault: Fault) -> str:
    result = ", ".join(fault.result) + (f": {fault.outcome}" if fault.outcome else "")
    tests = "<br>".join(f"`{test}`" for test in fault.tests)
    return f"| {fault.fault} | {fault.guarantee} | {fault.detected_by} | {result} | {tests} |"


def main() -> None:
    """Write all pages."""
    for path, text in pages().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
