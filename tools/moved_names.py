"""Map dotted names of version 0.3.0 to the names that modules and symbols have now.

    python -m tools.moved_names hourmark_producer.rests.Rests
    python -m tools.moved_names --rewrite my_script.py

`moved_names.tsv` has one line for each module or symbol that moved: the old dotted name, a tab, the
new one. A symbol that is not listed kept its name in the module that its module became. `--rewrite`
replaces dotted names and `from ... import ...` statements in files, in place.
"""

from __future__ import annotations

import argparse
import re
import sys
from functools import cache
from pathlib import Path
from typing import Final

TABLE: Final = Path(__file__).with_suffix(".tsv")
_IMPORT: Final = re.compile(r"^(\s*)from (hourmark[\w.]*) import \(?([^()]*?)\)?$", re.MULTILINE)
_DOTTED: Final = re.compile(r"\bhourmark\w*(?:\.\w+)+")


@cache
def table() -> dict[str, str]:
    """Return all names that moved, as a dict from the old dotted name to the new one."""
    lines = TABLE.read_text().splitlines()
    return dict(line.split("\t") for line in lines if line and not line.startswith("#"))


def new_name(old: str) -> str:
    """Return the present dotted name of `old`, which is returned unchanged if it did not move."""
    parts = old.split(".")
    for length in range(len(parts), 0, -1):
        if (moved := table().get(".".join(parts[:length]))) is not None:
            return ".".join([moved, *parts[length:]])
    return old


def rewritten(text: str) -> str:
    """Return the source text of a script with present names for all that it imports."""

    def statement(found: re.Match[str]) -> str:
        indent, module, names = found.groups()
        lines = []
        for name in (part.strip() for part in names.replace("\n", " ").split(",")):
            if not name:
                continue
            symbol, _, alias = name.partition(" as ")
            package, _, moved = new_name(f"{module}.{symbol.strip()}").rpartition(".")
            shown = (alias or symbol).strip()
            suffix = "" if shown == moved else f" as {shown}"
            lines.append(f"{indent}from {package} import {moved}{suffix}")
        return "\n".join(lines)

    imports = _IMPORT.sub(statement, text)
    present = set(table().values())

    def dotted(found: re.Match[str]) -> str:
        name = found[0]
        return (
            name
            if any(name == new or name.startswith(f"{new}.") for new in present)
            else new_name(name)
        )

    return "\n".join(
        line if line.lstrip().startswith("from ") else _DOTTED.sub(dotted, line)
        for line in imports.split("\n")
    )


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="+", help="old dotted names, or files with --rewrite")
    parser.add_argument("--rewrite", action="store_true", help="replace names in files")
    asked = parser.parse_args()
    for name in asked.names:
        if asked.rewrite:
            path = Path(name)
            path.write_text(rewritten(path.read_text()))
        else:
            print(new_name(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
