"""Validation of the tailer's settings beyond their types."""

from __future__ import annotations

import re
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from hourmark.config.groups import TailedSource
from hourmark.config.groups import TailerSettings as TailerConfig
from hourmark.errors import ConfigError
from hourmark.records.ranges import encode_range_fields
from hourmark_producer.cut.sources import NAMES
from hourmark_producer.history import beginnings
from hourmark_producer.receive.inputs import check_inputs

_BRACES: Final = re.compile(r"(?<!\[)\{[^{}/]*,[^{}/]*\}")


def validate_settings(settings: TailerConfig) -> TailerConfig:
    """Check the tailer's settings for invalid values and for conflicts between settings.

    Args:
        settings: Settings as read from the configuration.

    Returns:
        The same settings, unchanged.

    Raises:
        ConfigError: A setting is invalid or conflicts with another one. The message names it.
    """
    if not settings.sources:
        raise ConfigError(
            "tailer.sources is empty; add at least one: [[tailer.sources]] with name and paths"
        )
    check_inputs(settings)
    names = [source.name for source in settings.sources]
    for number, source in enumerate(settings.sources):
        where = f"tailer.sources.{number}"
        if names.index(source.name) != number:
            raise ConfigError(
                f"{where}.name = {source.name!r} is used twice; put all its globs into one `paths`"
            )
        for path in source.paths:
            if not path.startswith("/"):
                raise ConfigError(
                    f"{where}.paths = {path!r}: allowed: absolute globs, such as /var/log/app/*.log"
                )
        for name, globs in (("paths", source.paths), ("exclude", source.exclude)):
            for glob in globs:
                _check_braces(glob, f"{where}.{name}")
        if source.record_start is not None:
            _check_record_start(source.record_start, where)
        _check_cri(source, where)
        beginnings.check_source(source, where)
        try:
            encode_range_fields(source.fields)
        except ValueError as error:
            raise ConfigError(f"{where}.fields: {error}") from error
        try:
            ZoneInfo(source.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ConfigError(
                f"{where}.zone = {source.zone!r}: allowed: an IANA time zone, such as Europe/Vienna"
            ) from error
    if len(settings.host_name.encode()) > 255:
        raise ConfigError(
            f"tailer.host_name = {settings.host_name[:40]!r}…: allowed: up to 255 bytes"
        )
    return settings


def _check_braces(glob: str, where: str) -> None:
    if match := _BRACES.search(glob):
        first = match[0][1:-1].split(",")[0]
        raise ConfigError(
            f"{where} = {glob!r}: alternatives in braces are not supported. Write one glob per "
            f"alternative, such as {glob.replace(match[0], first)!r}; write a literal brace as "
            f"[{{]"
        )


def _check_cri(source: TailedSource, where: str) -> None:
    if source.format != "cri":
        return
    if source.record_start is not None:
        raise ConfigError(
            f"{where}.record_start cannot be combined with format = 'cri', in which each record "
            "is a line that a container wrote"
        )
    if taken := sorted(source.fields.keys() & set(NAMES)):
        raise ConfigError(
            f"{where}.fields.{taken[0]}: with format = 'cri', the path or each line determines "
            "this field"
        )
    try:
        encode_range_fields(source.fields | dict.fromkeys(NAMES, "x" * 253))
    except ValueError as error:
        raise ConfigError(f"{where}.fields, including the fields of containers: {error}") from error


def _check_record_start(pattern: str, where: str) -> None:
    from hourmark.records.record_start import (
        RecordStart,
    )  # where it is needed: not every host has such a source

    try:
        RecordStart(pattern)
    except ValueError as error:
        raise ConfigError(f"{where}.record_start = {pattern!r:.200}: {error}") from error
