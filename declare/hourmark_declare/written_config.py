"""Checks of a configuration folder before `hourmark init` extends it, and of what it would write.

Both use the loaders of the other commands, so `init` never leaves a folder that they refuse.
"""

from __future__ import annotations

import shutil
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

from hourmark.config.loading import build_config, load_config
from hourmark.errors import UsageError
from hourmark.rules.event_types import read_declarations
from hourmark_declare.proposing.config_files import SETTINGS, SOURCES


def check_existing(folder: Path) -> None:
    """Check the settings and declarations of an existing configuration folder.

    Args:
        folder: Path of the folder, which contains `hourmark.toml`.

    Raises:
        UsageError: A setting or declaration is invalid. The message names the file and the setting.
    """
    try:
        load_config(folder / SETTINGS)
        read_declarations((folder / SOURCES).parent)
    except UsageError as error:
        raise UsageError(
            f"{folder} already exists, and its configuration cannot be extended: "
            f"{error}\nCorrect it, or specify another folder with --out."
        ) from error


def check_written(folder: Path, written: Mapping[Path, str]) -> None:
    """Check the configuration that a folder would contain after new files are written to it.

    Existing files in the folder are checked together with the new ones. Nothing is written.

    Args:
        folder: Path of the folder, which need not exist.
        written: Maps the path of each new file, relative to `folder`, to its complete text.

    Raises:
        UsageError: The folder would contain an invalid setting or declaration.
    """
    for path, text in written.items():
        try:
            tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise UsageError(
                f"{folder / path} would not be valid TOML: {error}. If it defines a list of "
                "sources inline, write each of them as a table of its own, such as "
                "[[tailer.sources]] or [[source]]"
            ) from error
    build_config(folder / SETTINGS, tomllib.loads(written[SETTINGS]))
    with tempfile.TemporaryDirectory(prefix="hourmark-init-") as temporary:
        types = Path(temporary)
        for file in (folder / SOURCES).parent.glob("*.toml"):
            shutil.copyfile(file, types / file.name)
        for path, text in written.items():
            if path.parent == SOURCES.parent:
                (types / path.name).write_text(text)
        try:
            read_declarations(types)
        except UsageError as error:
            named = str(error).replace(str(types), str((folder / SOURCES).parent))
            raise type(error)(named) from error
