"""Configuration: one typed tree, read from one TOML file, overridden by the environment.

Precedence: environment (`HOURMARK_SERVICE__PORT=8080`), then the file, then `config_groups`'
defaults, each with its reason. docs/configuration.md is made from the descriptions there (`python
-m tools.configuration_page`); `hourmark config show` tells what is in force, and from where. The
file is `--config`, else `$HOURMARK_CONFIG`, else `./hourmark.toml`, else what `hourmark up` wrote
for the local stack. A wrong setting stops the start: the message names the setting, its value and
what is allowed. Unknown settings are refused, so that a typing error cannot become a silent
default.
"""

from __future__ import annotations

import functools
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import click
from pydantic import ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from hourmark.config.groups import (
    BucketSettings,
    EtlSettings,
    KafkaSettings,
    MirrorSettings,
    RegistrySettings,
    ServiceSettings,
    StorageSettings,
    TailerSettings,
    TypesSettings,
)
from hourmark.config.redaction import add_secrets_of, redact_setting
from hourmark.config.references import resolve_references
from hourmark.errors import ConfigError

PREFIX: Final = "HOURMARK_"
_NEXT: Final = "docs/configuration.md lists all"


class Config(BaseSettings):
    """The whole tree.

    Each group is owned by the room that reads it; `kafka`, `parsing`, `storage` are shared.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        nested_model_default_partial_update=True,
    )

    kafka: KafkaSettings = KafkaSettings()
    registry: RegistrySettings = RegistrySettings()
    parsing: BucketSettings = BucketSettings()
    service: ServiceSettings = ServiceSettings()
    tailer: TailerSettings = TailerSettings()
    mirror: MirrorSettings = MirrorSettings()
    storage: StorageSettings = StorageSettings()
    etl: EtlSettings = EtlSettings()
    types: TypesSettings = TypesSettings()
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """of the log on stderr, of every command"""

    @model_validator(mode="before")
    @classmethod
    def _with_references(cls, values: Any) -> Any:
        found = resolve_references(values)
        add_secrets_of(found)  # before they are checked: an error of that must not show them
        return found

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003  # pydantic-settings' signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment wins over the file (which arrives as init arguments)."""
        return env_settings, init_settings


def load_config(path: Path | None = None) -> Config:
    """Read and check the configuration; ConfigError names the wrong setting.

    `path` None looks where the module's docstring says; no file at all means the defaults and the
    environment.
    """
    return build_config(*read_config_file(path))


def read_config_file(path: Path | None) -> tuple[Path | None, dict[str, Any]]:
    """The file that is used, if any, and what stands in it. ConfigError if it cannot be read."""
    file = path or default_config_file()
    if file is None:
        return None, {}
    try:
        return file, tomllib.loads(file.read_text())
    except OSError as error:
        raise ConfigError(
            f"cannot read the configuration {file}: {error.strerror}; name another with --config"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is no valid TOML: {error}") from error


def build_config(file: Path | None, values: Mapping[str, Any]) -> Config:
    """The configuration of what `file` holds and the environment. ConfigError."""
    for name in os.environ:
        group, nested, _ = name.upper().removeprefix(PREFIX).partition("__")
        if name.upper().startswith(PREFIX) and nested and group.lower() not in Config.model_fields:
            raise ConfigError(f"{name}: there are no settings {group.lower()!r}; {_NEXT}")
    try:
        return Config(**values)
    except ValidationError as error:
        raise ConfigError(
            _describe(error, file)
        ) from None  # the cause would show values, passwords too
    except SettingsError as error:
        group = next(iter(re.findall(r'field "(\w+)"', str(error))), "")
        raise ConfigError(
            f"a variable {PREFIX}{group.upper()}… holds no valid JSON; lists and tables are written as JSON, such as "
            f"""{PREFIX}TAILER__SERVICE_URLS='["http://127.0.0.1:8780"]'"""
        ) from None


def default_config_file() -> Path | None:
    """The configuration file used when none is named, or None."""
    if named := os.environ.get("HOURMARK_CONFIG"):
        return Path(named)
    candidates = (Path("hourmark.toml"), stack_state_dir() / "stack" / "hourmark.toml")
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def stack_state_dir() -> Path:
    """Where the local stack keeps its state: `$HOURMARK_HOME`, else `.hourmark` in the working
    directory.
    """
    return Path(os.environ.get("HOURMARK_HOME", ".hourmark")).absolute()


def _describe(error: ValidationError, file: Path | None) -> str:
    origin = f"{file} (or a {PREFIX}… variable)" if file else f"the environment ({PREFIX}…)"
    lines = []
    for problem in error.errors(include_url=False):
        setting = ".".join(str(part) for part in problem["loc"])
        given, said = f" = {redact_setting(problem['input'], setting)!r:.200}", problem["msg"]
        if (
            problem["type"] == "extra_forbidden"
        ):  # a value under a wrong name may be anything, a password too
            given, said = "", f"no such setting; {_NEXT}"
        elif problem["type"] == "missing" or isinstance(problem["input"], (dict, list)):
            given = ""
        lines.append(f"  {setting}{given}: {said}")
    return f"wrong settings in {origin}:\n" + "\n".join(lines)


_NAMED = "hourmark.config.loading"  # in click's context: the file that was named


def _callback(context: click.Context, _: click.Parameter, path: Path | None) -> Config:
    if context.resilient_parsing:
        return Config.model_construct()
    context.meta[_NAMED] = path
    return load_config(path)


def remember_config_file(
    context: click.Context, _: click.Parameter, path: Path | None
) -> Path | None:
    """For an option of a group, or of its command, that names the file and does not read it yet:
    the nearer one counts.
    """
    if path is not None:
        context.meta[_NAMED] = path
    return path


def given_config_file() -> Path | None:
    """The file that `--config` names to the running command, if any."""
    path: Path | None = click.get_current_context().meta.get(_NAMED)
    return path


def config_arguments() -> tuple[str, ...]:
    """`--config FILE` as the running command was given it, for a command to be shown beside it;
    empty where it was not.
    """
    path = given_config_file()
    return () if path is None else ("--config", str(path))


# For a command that reads the file itself.
config_file_option = functools.partial(
    click.option,
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help=(
        "Configuration file (TOML). Default: $HOURMARK_CONFIG, ./hourmark.toml, or the local "
        "stack's."
    ),
)
# Every other command that reads settings takes this option; the function receives a checked
# `Config` as `config`.
config_option = config_file_option("config", callback=_callback)
