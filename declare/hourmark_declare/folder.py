"""Reads and checks the folder of declarations that a command names."""

from __future__ import annotations

from pathlib import Path

import click

from hourmark.errors import TypeFileError
from hourmark.rules.event_types import Declarations, read_declarations
from hourmark.rules.revision import TypeVersion
from hourmark_delivery_service.parsing.compiled import CompiledType

dir_option = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder with the declarations. Default: types.dir.",
)


def load_declarations(folder: Path) -> Declarations:
    """Load the declarations of event types and sources from a folder.

    Each type is compiled as in the delivery service, to detect errors before types are applied.

    Args:
        folder: Folder that contains one TOML file for each type, and `sources.toml`.

    Returns:
        The declared types, sources and limits.

    Raises:
        TypeFileError: The folder does not exist, a file is invalid, or some types cannot be
            compiled. In the last case, the message lists these types.
    """
    declared = read_declarations(folder)
    problems = [
        problem
        for t in declared.types
        if (problem := CompiledType(TypeVersion(t, 0)).problem) is not None
    ]
    if problems:
        raise TypeFileError("\n".join(problems))
    return declared
