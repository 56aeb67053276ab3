"""Loading of the configuration: one typed tree from one TOML file, overridden by the environment.

Precedence: environment variables (`HOURMARK_SERVICE__PORT=8080`), then the file, then the defaults
in `groups`. The file is the one given with `--config`, else `$HOURMARK_CONFIG`, else
`./hourmark.toml`, else the file that `hourmark up` wrote for the local stack. An invalid setting
stops the start with its name, its value and the allowed range. Unknown settings are rejected, so
that a typing error cannot silently select a default.

docs/reference/configuration.md is generated from the descriptions in `groups` (`python -m
tools.configuration_page`). `hourmark config show` prints the settings in force and their origins.
"""

from __future__ import annotations

import functools
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, Self

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
_S3_FILE_BYTES: Final = 4 << 30  # a copy of an object is limited to 5 GiB
_NEXT: Final = "see docs/reference/configuration.md for all settings"


class Config(BaseSettings):
    """The complete configuration of an installation, from a TOML file and the environment.

    Each field except `log_level` is a group of settings that belongs to the component that reads
    it. `kafka`, `parsing` and `storage` are shared. Use `load_config` to create an instance.
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
    """Lowest level of the log messages that commands write to stderr."""

    @model_validator(mode="before")
    @classmethod
    def _with_references(cls, values: Any) -> Any:
        found = resolve_references(values)
        add_secrets_of(found)  # before validation, whose errors must not contain them
        return found

    @model_validator(mode="after")
    def _with_files_that_can_be_copied(self) -> Self:
        if self.storage.root.startswith("s3://") and self.etl.target_file_bytes > _S3_FILE_BYTES:
            raise ValueError(
                f"etl.target_file_bytes is {self.etl.target_file_bytes}, but with storage.root on "
                f"S3 it must be at most {_S3_FILE_BYTES}: larger objects cannot be copied"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003  # pydantic-settings' signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources of settings in order of precedence; called by pydantic.

        Environment variables take precedence over values from the configuration file. The other
        sources that pydantic offers are not used.

        Args:
            settings_cls: Not used.
            init_settings: Source with the values from the configuration file.
            env_settings: Source with the values from environment variables.
            dotenv_settings: Not used.
            file_secret_settings: Not used.

        Returns:
            `env_settings`, then `init_settings`.
        """
        return env_settings, init_settings


def load_config(path: Path | None = None) -> Config:
    """Read and validate the configuration.

    Environment variables that begin with `HOURMARK_` override settings of the file.

    Args:
        path: The TOML file. None selects `$HOURMARK_CONFIG`, `./hourmark.toml` or the local stack's
            file, in this order. If none exists, only the environment and the defaults apply.

    Returns:
        The validated, immutable configuration.

    Raises:
        ConfigError: The file cannot be read, or a setting is invalid or unknown. The message lists
            all invalid settings.
    """
    return build_config(*read_config_file(path))


def read_config_file(path: Path | None) -> tuple[Path | None, dict[str, Any]]:
    """Find and parse the configuration file without validating its settings.

    Args:
        path: The TOML file. None selects the default file; see `default_config_file`.

    Returns:
        The path of the file, and its content as nested tables. None and an empty dict if there is
        no file.

    Raises:
        ConfigError: The file cannot be read or is not valid TOML.
    """
    file = path or default_config_file()
    if file is None:
        return None, {}
    try:
        return file, tomllib.loads(file.read_text())
    except OSError as error:
        raise ConfigError(
            f"cannot read the configuration {file}: {error.strerror}; specify another file with "
            "--config"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not valid TOML: {error}") from error


def build_config(file: Path | None, values: Mapping[str, Any]) -> Config:
    """Combine the content of a configuration file with the environment, and validate the result.

    Args:
        file: Path of the file, for error messages; None if there is no file.
        values: Content of the file as nested tables; empty if there is no file.

    Returns:
        The validated, immutable configuration.

    Raises:
        ConfigError: A setting is invalid or unknown. The message lists all invalid settings.
    """
    for name in os.environ:
        group, nested, _ = name.upper().removeprefix(PREFIX).partition("__")
        if name.upper().startswith(PREFIX) and nested and group.lower() not in Config.model_fields:
            raise ConfigError(f"{name}: unknown group of settings {group.lower()!r}; {_NEXT}")
    try:
        return Config(**values)
    except ValidationError as error:
        raise ConfigError(
            _describe(error, file)
        ) from None  # the cause would show values, including passwords
    except SettingsError as error:
        group = next(iter(re.findall(r'field "(\w+)"', str(error))), "")
        raise ConfigError(
            f"a variable {PREFIX}{group.upper()}… does not contain valid JSON; write lists and tables as JSON, such as "
            f"""{PREFIX}TAILER__SERVICE_URLS='["http://127.0.0.1:8780"]'"""
        ) from None


def default_config_file() -> Path | None:
    """Return the path of the default configuration file.

    Returns:
        `$HOURMARK_CONFIG` if it is set, even if the file does not exist. Otherwise
        `./hourmark.toml` or the file of the local stack, whichever exists first. None if neither
        exists.
    """
    if named := os.environ.get("HOURMARK_CONFIG"):
        return Path(named)
    candidates = (Path("hourmark.toml"), stack_config_file())
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def stack_state_dir() -> Path:
    """Return the data and configuration folder of the local stack (`hourmark up`).

    Returns:
        The absolute path of `$HOURMARK_HOME`, or of `.hourmark` in the current folder if the
        variable is not set. The folder may not exist.
    """
    return Path(os.environ.get("HOURMARK_HOME", ".hourmark")).absolute()


def stack_config_file() -> Path:
    """Return the path of the configuration file that `hourmark up` writes for the local stack.

    The file exists only if there is a local stack.
    """
    return stack_state_dir() / "stack" / "hourmark.toml"


def _describe(error: ValidationError, file: Path | None) -> str:
    origin = f"{file} (or a {PREFIX}… variable)" if file else f"the environment ({PREFIX}…)"
    lines = []
    for problem in error.errors(include_url=False):
        setting = ".".join(str(part) for part in problem["loc"])
        if not setting:  # a condition between settings, which it names
            lines.append(f"  {problem['msg'].removeprefix('Value error, ')}")
            continue
        given, said = f" = {redact_setting(problem['input'], setting)!r:.200}", problem["msg"]
        if (
            problem["type"] == "extra_forbidden"
        ):  # the value of an unknown setting may be a password
            given, said = "", f"unknown setting; {_NEXT}"
        elif problem["type"] == "missing" or isinstance(problem["input"], (dict, list)):
            given = ""
        lines.append(f"  {setting}{given}: {said}")
    return f"invalid settings in {origin}:\n" + "\n".join(lines)


_NAMED = "hourmark.config.loading"  # key in click's context: the file given with --config


def _callback(context: click.Context, _: click.Parameter, path: Path | None) -> Config:
    if context.resilient_parsing:
        return Config.model_construct()
    context.meta[_NAMED] = path
    return load_config(path)


def remember_config_file(
    context: click.Context, _: click.Parameter, path: Path | None
) -> Path | None:
    """Store the path given with `--config`, without reading the file; used as a click callback.

    `given_config_file` returns the stored path. If the option is given to both a group and its
    command, the command's value is used.

    Args:
        context: Context of the click command. The path is stored there.
        path: Path of the configuration file; None if the option was not given.

    Returns:
        The path, unchanged.
    """
    if path is not None:
        context.meta[_NAMED] = path
    return path


def given_config_file() -> Path | None:
    """Return the path that the user gave with `--config` to the running click command.

    Returns:
        The path; None if the option was not given.

    Raises:
        RuntimeError: No click command is running.
    """
    path: Path | None = click.get_current_context().meta.get(_NAMED)
    return path


def config_arguments() -> tuple[str, ...]:
    """Return the `--config` arguments of the running click command.

    Append them to a command so that it uses the same configuration.

    Returns:
        `("--config", path)`; an empty tuple if the option was not given.

    Raises:
        RuntimeError: No click command is running.
    """
    path = given_config_file()
    return () if path is None else ("--config", str(path))


# For a command that reads the file itself.
config_file_option = functools.partial(
    click.option,
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help=(
        "Configuration file (TOML). Default: $HOURMARK_CONFIG, ./hourmark.toml, or the file of the "
        "local stack."
    ),
)
# Every other command that reads settings takes this option; the function receives a checked
# `Config` as `config`.
config_option = config_file_option("config", callback=_callback)
