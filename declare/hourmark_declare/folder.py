"""The folder of declarations that a command is about."""

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
    help="Folder of declarations. Default: types.dir.",
)


def declarations(folder: Path) -> Declarations:
    """What the folder declares, tried as the delivery service will use it; TypeFileError says what
    it could not.
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
