"""Store the present results of the parser permanently: `python -m tools.keep_parser_vectors`.

Run it once for each `hourmark.rules.revision.PARSER.parser`. The inputs are those of
`tools.parser_cases`. The service does not start if it computes another result for a stored vector.
The vectors of a parser number are therefore never overwritten: a change that alters one needs a new
number. With a name from `parser_check.EXTRAS`, the inputs are those of `tools.parser_extras`:
ranges with properties that are newer than version 0.2.0.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from tools import parser_cases, parser_extras

from hourmark.errors import UsageError
from hourmark.process.durable import write_durably
from hourmark.rules.revision import PARSER
from hourmark_delivery_service.parsing.parser_check import (
    EXTRAS,
    FOLDER,
    ParserVectors,
    dependency_versions,
)


def main(folder: Path = FOLDER, name: str = str(PARSER.parser)) -> None:
    """Write the vectors of the current parser number, or those of extras.

    Args:
        folder: Folder of the vector files.
        name: Parser number, or a name from `parser_check.EXTRAS`.

    Raises:
        UsageError: The file exists already.
    """
    file = folder / f"{name}.json"
    if file.exists():
        raise UsageError(
            f"{file} exists already, and rules revisions name that parser: its results never "
            "change. For an intended change, increase hourmark.rules.revision.PARSER first; see "
            "docs/internals/decisions/2026-11-22-the-parser-is-versioned.md"
        )
    content = made(parser_extras if name in EXTRAS else parser_cases)
    write_durably(file, rendered(content).encode(), mode=0o644)
    print(
        f"{file}: {len(content['vectors'])} vectors, {file.stat().st_size // 1000} kB; "
        "next step: commit it"
    )


def made(of: ModuleType = parser_cases) -> dict[str, Any]:
    """Return the vectors that the current parser gives for the inputs of a module, with digests.

    Args:
        of: Module with the inputs, `parser_cases` or `parser_extras`.
    """
    inputs = list(of.cases())
    bodies = list(dict.fromkeys(json.dumps(case["body"]) for case in inputs))
    content: dict[str, Any] = {
        "made_with": dependency_versions(),
        "ranges": parser_cases.RANGES,
        "rules": list(dict(record for rules in of.REVISIONS for record in rules.records()).items()),
        "bodies": [json.loads(body) for body in bodies],
        "vectors": [{**case, "body": bodies.index(json.dumps(case["body"]))} for case in inputs],
    }
    vectors = ParserVectors(content)
    for vector in content["vectors"]:
        vector["digest"] = vectors.digest(vector)
    return content


def rendered(content: dict[str, Any]) -> str:
    """Return vectors as JSON text with one entry per line."""
    lines = {
        name: ",\n".join(json.dumps(entry) for entry in content[name])
        for name in ("rules", "bodies", "vectors")
    }
    head = ",\n".join(f'"{name}": {json.dumps(content[name])}' for name in ("made_with", "ranges"))
    return (
        "{"
        + head
        + "".join(f',\n"{name}": [\n{entries}\n]' for name, entries in lines.items())
        + "}\n"
    )


if __name__ == "__main__":
    try:
        main(FOLDER, *sys.argv[1:2])
    except UsageError as error:
        sys.exit(str(error))
