"""`hourmark config`: show the effective settings and the origin of each value.

Secrets are shown as `(hidden)`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import click
from pydantic import BaseModel
from pydantic_settings import EnvSettingsSource

from hourmark.config.loading import (
    PREFIX,
    Config,
    build_config,
    config_file_option,
    read_config_file,
)
from hourmark.config.redaction import redact_setting
from hourmark.printing import json_option, print_json

Keys = tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class SettingInForce:
    """The effective value of one setting, and where the value comes from.

    Attributes:
        keys: Parts of the setting's dotted name, such as `("service", "port")`.
        value: The value; secrets are not redacted.
        source: Origin of the value: `default`, `file` or `environment`.
        where: The file or environment variable that sets the value; None for a default.
    """

    keys: Keys
    value: Any
    source: Literal["default", "file", "environment"]
    where: str | None


@click.group("config")
def config_group() -> None:
    """Show the effective settings and the origin of each value."""


@config_group.command()
@config_file_option("path")
@json_option
def show(path: Path | None, as_json: bool) -> None:
    """Show every effective setting and its origin: default, file or environment variable.

    Passwords and keys are shown as (hidden). Each setting is described in
    docs/reference/configuration.md.

    \b
    Examples:
      hourmark config show
      hourmark config show --config hourmark.toml --json
    """
    file, values = read_config_file(path)
    settings = list(settings_in_force(file, values))
    if as_json:
        rows = [
            {
                "setting": _setting_name(s.keys),
                "value": redact_setting(s.value, s.keys[-1]),
                "from": s.source,
                "where": s.where,
            }
            for s in settings
        ]
        print_json({"file": None if file is None else str(file), "settings": rows})
        return
    click.echo(f"# {'no file' if file is None else file}, and {PREFIX}… variables")
    for setting in settings:
        click.echo(
            f"{_setting_name(setting.keys)} = {_text(setting)}  # {setting.where or setting.source}"
        )


def settings_in_force(file: Path | None, values: Mapping[str, Any]) -> Iterator[SettingInForce]:
    """Yield every setting with its effective value and origin.

    A table with user-defined keys yields one setting for each entry.

    Args:
        file: Path of the configuration file; None if there is none.
        values: Content of the file as nested tables; empty if there is no file.

    Raises:
        ConfigError: A setting is invalid or unknown.
    """
    config = build_config(file, values)
    environment = EnvSettingsSource(Config)()
    for keys, value in _leaves(config):
        if _contains(environment, keys):
            yield SettingInForce(keys, value, "environment", _variable(keys))
        elif _contains(values, keys):
            yield SettingInForce(keys, value, "file", str(file))
        else:
            yield SettingInForce(keys, value, "default", None)


def _leaves(group: BaseModel) -> Iterator[tuple[Keys, Any]]:
    for name in type(group).model_fields:
        value = getattr(group, name)
        if isinstance(value, BaseModel):
            yield from (((name, *keys), inner) for keys, inner in _leaves(value))
        elif isinstance(value, Mapping) and value:
            for key, inner in value.items():
                within = _leaves(inner) if isinstance(inner, BaseModel) else [((), inner)]
                yield from (((name, key, *keys), leaf) for keys, leaf in within)
        else:
            yield (name,), group.model_dump(mode="json")[name]


def _contains(tree: Any, keys: Keys) -> bool:
    for key in keys:
        if not isinstance(tree, Mapping) or key not in tree:
            return False
        tree = tree[key]
    return True


def _variable(keys: Keys) -> str:
    # The variable may set the setting itself, or as JSON a table that contains it.
    names = {name.upper(): name for name in os.environ}
    for length in range(len(keys), 0, -1):
        name = names.get(PREFIX + "__".join(keys[:length]).upper())
        if name and (length == len(keys) or _contains(json.loads(os.environ[name]), keys[length:])):
            return name
    raise AssertionError(f"{_setting_name(keys)} is from the environment, but no variable has it")


def _setting_name(keys: Keys) -> str:
    return ".".join(
        key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key) for key in keys
    )


def _text(setting: SettingInForce) -> str:
    return (
        "(absent)"
        if setting.value is None
        else json.dumps(redact_setting(setting.value, setting.keys[-1]), ensure_ascii=False)
    )
