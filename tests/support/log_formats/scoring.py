"""Scores of what `hourmark init` proposes for the formats of the corpus.

`python -m tests.support.log_formats.scoring` prints a table of them.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.support.log_formats import CORPUS, FURTHER
from tests.support.log_formats.model import WRITTEN_MS, Expected, LogFormat

from hourmark_declare.proposing.file_sample import read_sample
from hourmark_declare.proposing.selection import Proposal, propose

HOST: Final = "tailer-1"
LEVEL_FIELDS: Final = ("level", "severity", "severityText", "s", "PRIORITY", "lvl")
PROGRAM_FIELDS: Final = (
    "program",
    "logger",
    "component",
    "caller",
    "role",
    "name",
    "c",
    "SYSLOG_IDENTIFIER",
    "module",
    "thread",
    "scope_name",
)


def propose_format(form: LogFormat, folder: Path) -> Proposal:
    """Write the sample of a format into a folder, and return what is proposed for it."""
    path = folder / f"{form.name}.log"
    path.write_bytes(form.text().encode())
    sample = read_sample(path)._replace(written_ms=WRITTEN_MS)
    return propose(sample, "app", zone="UTC", host=HOST)


def score(proposal: Proposal, expected: Expected) -> Mapping[str, bool]:
    """Return for each aspect of a proposal whether it is as expected.

    Args:
        proposal: The selected format of the sample.
        expected: Structure that an engineer would declare.
    """
    candidate, first = proposal.candidate, proposal.examples[0]
    payloads = expected.payload if isinstance(expected.payload, tuple) else (expected.payload,)
    payload = "syslog" if not candidate.line else candidate.line["payload"]
    values = first.fields
    numbers = [v for v in values.values() if type(v) in (int, float)]
    return {
        "parser": payload in payloads,
        "time": (proposal.oldest is None if expected.time is None else first.time == expected.time),
        "host": first.host == (expected.host or HOST),
        "level": _among(values, LEVEL_FIELDS, expected.level),
        "program": _among(values, PROGRAM_FIELDS, expected.program),
        "numbers": all(number in numbers for number in expected.numbers),
        "texts": {*expected.texts} <= {*map(str, values.values())},
        "filled": not proposal.unfilled,
        "confidence": (proposal.safest is not None) == expected.doubted,
        "unparsed": proposal.records - proposal.fitting == expected.unparsed,
        "records": bool(candidate.record_start) == expected.multiline
        and (getattr(candidate, "container_log", False) == expected.cri),
    }


def _among(values: Mapping[str, object], names: tuple[str, ...], value: str | None) -> bool:
    lower = {name.lower(): of for name, of in values.items()}
    return value is None or any(str(lower.get(name.lower())) == value for name in names)


def main() -> None:
    """Print one line for each format, or for those that are named, with the aspects that differ."""
    names = sys.argv[1:]
    right = 0
    chosen = [form for form in (*CORPUS, *FURTHER) if not names or form.name in names]
    with tempfile.TemporaryDirectory() as folder:
        for form in chosen:
            proposal = propose_format(form, Path(folder))
            scores = score(proposal, form.expected)
            wrong = [aspect for aspect, fits in scores.items() if not fits]
            right += not wrong
            print(
                f"{form.name:24} {sum(scores.values())}/{len(scores)} {proposal.candidate.form:40} {' '.join(wrong)}"
            )
            if names:
                print(
                    form.text()[:300],
                    proposal.candidate,
                    dataclasses.asdict(proposal.examples[0]),
                    sep="\n",
                )
                print(proposal.records, proposal.fitting, proposal.caught, proposal.dead_letters)
    print(f"{right} of {len(chosen)} fully right")


if __name__ == "__main__":
    main()
