"""Rollback checks of settings and rules revisions that an older version cannot use.

An older version refuses to start with a setting that it does not know. Its delivery services cannot
parse a byte range whose rules revision names a newer parser.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hourmark.kafka.topic_names import TYPES
from hourmark.rollback.obstacle import Obstacle
from hourmark.rollback.version import OlderVersion
from hourmark.rules.revision import Rules


def unknown_settings(
    name: str, values: Mapping[str, Any], older: OlderVersion
) -> Iterator[Obstacle]:
    """Find settings that an older version rejects or interprets differently.

    Args:
        name: Origin of the settings for messages: the path of a file, or `the environment`.
        values: Settings as nested tables.
        older: The version to roll back to.

    Yields:
        At most three obstacles: one for all unknown settings, one for all references to files or
        environment variables that the older version would not resolve, and one for several
        addresses of NameNodes.
    """
    leaves = list(_leaves(values))
    unknown = sorted({key for key, _ in leaves if is_unknown(key, older)})
    if unknown:
        yield Obstacle(
            name,
            f"{older.name} does not support {', '.join(unknown)} and refuses to start",
            "remove these settings from the configuration before the rollback; "
            "docs/reference/configuration.md describes what each one does",
        )
    referring = sorted(
        {
            key
            for key, value in leaves
            if isinstance(value, str) and ("${file:" in value or "${env:" in value)
        }
    )
    if referring and not older.references:
        yield Obstacle(
            name,
            f"{older.name} does not resolve the references (${{file:…}}, ${{env:…}}) in "
            f"{', '.join(referring)}, and uses them literally",
            "write the values themselves into a separate configuration file that only its user "
            "can read",
        )
    is_list = any(key == "storage.webhdfs" and "," in str(value) for key, value in leaves)
    if is_list and not older.several_namenodes:
        yield Obstacle(
            name,
            f"{older.name} supports only one address in storage.webhdfs",
            "set storage.webhdfs to the address of the active NameNode before the rollback",
        )


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, name)
    else:
        yield name, value


def is_unknown(name: str, older: OlderVersion) -> bool:
    """Return whether a setting does not exist in an older version of Hourmark.

    The older version refuses to start with a configuration that contains the setting.

    Args:
        name: Dotted name of the setting, such as `service.workers`.
        older: The older version.
    """
    groups = (group.removesuffix("*") for group in older.no_settings if group.endswith(".*"))
    return name in older.no_settings or any(f"{name}.".startswith(group) for group in groups)


def unusable_rules(revisions: Iterable[Rules], older: OlderVersion) -> Iterator[Obstacle]:
    """Check whether an older version can parse byte ranges with every published rules revision.

    A rules revision is one published version of the declared event types and sources, and names the
    parser that it requires. Each byte range of a log file must be parsed with the revision that it
    refers to, so the older version needs the parsers of all revisions.

    Args:
        revisions: All rules revisions, oldest first.
        older: The version to roll back to.

    Yields:
        One obstacle, which names the first revision with a missing parser. Nothing if the older
        version has all parsers.
    """
    if later := [rules for rules in revisions if rules.parser.parser not in older.parsers]:
        yield Obstacle(
            f"topic {TYPES}",
            f"revision {later[0].id} requires parser {later[0].parser.parser}, which "
            f"{older.name} does not have: its ranges would wait indefinitely",
            "none: after the first `hourmark types apply` of this version, services cannot be "
            f"rolled back to {older.name}",
        )
