"""Adds sources and types of further log files to an existing configuration folder."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hourmark.config.groups import EventTimeLimits, find_tailed_source
from hourmark.errors import UsageError
from hourmark.records.hours import Hour
from hourmark_declare.proposing.config_files import (
    SETTINGS,
    SOURCES,
    render_limits,
    render_sources,
    render_tailer_sources,
    render_type_files,
    required_lateness_s,
)
from hourmark_declare.proposing.first_hours import choose_added_first_hour
from hourmark_declare.proposing.selection import Proposal

_FIRST_HOUR: Final = re.compile(r'^(\s*(?:types\.)?first_hour\s*=\s*)"[^"]*"', re.MULTILINE)


@dataclass(frozen=True)
class ExistingConfig:
    """The content of an existing configuration folder, to which log files can be added.

    Instances do not write to the folder.

    Attributes:
        folder: Path of the folder.
        settings: Text of `hourmark.toml`, which contains the settings of all components.
        sources: Text of `types/sources.toml`, which declares the log sources.
        types: Names of the TOML files in the folder `types`, without their suffix.
    """

    folder: Path
    settings: str
    sources: str
    types: frozenset[str]

    @classmethod
    def read(cls, folder: Path) -> ExistingConfig | None:
        """Read the configuration in a folder, if there is one.

        Args:
            folder: Path of the folder, which need not exist.

        Returns:
            The configuration; None if the folder contains no `hourmark.toml`.

        Raises:
            UsageError: A file cannot be read or is not valid TOML.
        """
        if not (folder / SETTINGS).exists():
            return None
        try:
            settings, sources = ((folder / path).read_text() for path in (SETTINGS, SOURCES))
            for text in (settings, sources):
                tomllib.loads(text)
        except (OSError, ValueError) as error:
            raise UsageError(
                f"{folder} is there already, and cannot be added to: {error}; name "
                "another with --out"
            ) from error
        return cls(
            folder,
            settings,
            sources,
            frozenset(file.stem for file in (folder / SOURCES).parent.glob("*.toml")),
        )

    @property
    def names(self) -> frozenset[str]:
        """Return the names of all sources and event types in this configuration.

        A log file that is added needs a different name.
        """
        followed = (source.get("name", "") for source in self._followed)
        return (
            self.types
            | {source.get("name", "") for source in tomllib.loads(self.sources).get("source", [])}
            | {*followed}
        )

    @property
    def bucket_seconds(self) -> int:
        """Return the bucket length in seconds.

        Returns:
            The value of `parsing.bucket_seconds`; 3600 if it is not set.
        """
        return int(tomllib.loads(self.settings).get("parsing", {}).get("bucket_seconds", 3600))

    def choose_first_hour(self, wanted: Hour, now_ms: int) -> Hour | None:
        """Choose the first hourly bucket of event types that are added to this configuration.

        The setting `types.first_hour` applies to all new types of a configuration. It is replaced
        by `wanted` if this is earlier, or if the setting is more than 300 buckets in the past.

        Args:
            wanted: First bucket that the added log files need: the current bucket or the previous
                one.
            now_ms: Current time in Unix milliseconds.

        Returns:
            The bucket for the setting `types.first_hour`. None if the file does not contain this
            setting; buckets then start when the types are applied.

        Raises:
            UsageError: `types.first_hour` in the settings is invalid.
        """
        begins = self._types_of(self.settings).get("first_hour")
        try:
            first = choose_added_first_hour(begins, wanted, now_ms)
        except ValueError as error:
            raise UsageError(f"{self.folder / SETTINGS}: types.first_hour: {error}") from error
        if first is None or self._types_of(self._beginning(first)).get("first_hour") != str(first):
            return None
        return first

    def refuse_tailed_files(self, files: Iterable[Path]) -> None:
        """Check that this configuration does not read any of the given log files yet.

        Args:
            files: Absolute paths of the log files to add.

        Raises:
            UsageError: A path matches a file pattern in `[[tailer.sources]]` of the configuration.
                The message names the file and the source.
        """
        for file in files:
            if source := find_tailed_source(self._followed, file):
                raise UsageError(
                    f"{file} is followed already, as source {source} of {self.folder / SETTINGS}; "
                    f"`hourmark run` continues with it. To start over, remove {self.folder}, and "
                    "what the local stack holds by `hourmark purge --yes`"
                )

    @property
    def _followed(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (
            tomllib.loads(self.settings).get("tailer", {}).get("sources", [])
        )
        return found

    def render_extended(
        self, proposals: Sequence[Proposal], zone: str, now_ms: int, begins: Hour | None
    ) -> dict[Path, str]:
        """Render the files that change when log files are added to this configuration.

        Args:
            proposals: The selected format of each added log file.
            zone: IANA time zone of timestamps without a time zone.
            now_ms: Current time in Unix milliseconds.
            begins: New value of `types.first_hour`; None to leave the setting unchanged.

        Returns:
            Maps the path of each new or changed file, relative to the folder, to its complete text.

        Raises:
            UsageError: The lateness limit in `sources.toml` is too low for the added lines, and was
                edited, so it cannot be raised automatically.
        """
        settings = self._beginning(begins) if begins else self.settings
        return {
            SETTINGS: settings.rstrip("\n") + "\n" + render_tailer_sources(proposals, zone),
            **render_type_files(proposals),
            SOURCES: self._late_enough(required_lateness_s(proposals, now_ms)).rstrip("\n")
            + "\n"
            + render_sources(proposals),
        }

    def _beginning(self, first: Hour) -> str:
        return _FIRST_HOUR.sub(rf'\g<1>"{first}"', self.settings, count=1)

    @staticmethod
    def _types_of(settings: str) -> dict[str, Any]:
        found: dict[str, Any] = tomllib.loads(settings).get("types", {})
        return found

    def _late_enough(self, needed: int) -> str:
        limits = tomllib.loads(self.sources).get("limits", {})
        if (
            allowed := limits.get("lateness_seconds", EventTimeLimits().lateness_seconds)
        ) >= needed:
            return self.sources
        if not limits:
            return self.sources.rstrip("\n") + "\n" + render_limits(needed)
        if render_limits(allowed) not in self.sources:
            raise UsageError(
                f"{self.folder / SOURCES}: limits.lateness_seconds is {allowed}, and must be "
                f"{needed} for the oldest line that "
                "is there to be an event; set it, then try again"
            )
        return self.sources.replace(render_limits(allowed), render_limits(needed))
