"""Log files that join a configuration that is there: their sources and types are written behind
what stands in it. Pure.
"""

from __future__ import annotations

import fnmatch
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hourmark.config.groups import EventTimeLimits
from hourmark.errors import UsageError
from hourmark.records.hours import Hour
from hourmark_declare.proposing.beginning import first_hour_beside
from hourmark_declare.proposing.choosing import Proposal
from hourmark_declare.proposing.writing import (
    SETTINGS,
    SOURCES,
    followed_text,
    lateness_seconds,
    limits_text,
    sources_text,
    type_files,
)

_FIRST_HOUR: Final = re.compile(r'^(\s*(?:types\.)?first_hour\s*=\s*)"[^"]*"', re.MULTILINE)


@dataclass(frozen=True)
class Existing:
    """A folder that was written before, as it stands now. `types`: names of its type files."""

    folder: Path
    settings: str
    sources: str
    types: frozenset[str]

    @classmethod
    def read(cls, folder: Path) -> Existing | None:
        """None where there are no settings yet. UsageError where they cannot be read."""
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
        """Of sources and types."""
        followed = (source.get("name", "") for source in self._followed)
        return (
            self.types
            | {source.get("name", "") for source in tomllib.loads(self.sources).get("source", [])}
            | {*followed}
        )

    @property
    def bucket_seconds(self) -> int:
        """How long its buckets are."""
        return int(tomllib.loads(self.settings).get("parsing", {}).get("bucket_seconds", 3600))

    def begins(self, wanted: Hour, now_ms: int) -> Hour | None:
        """Where buckets of types that join begin, whose lines want this one; None: when they are
        applied.
        """
        begins = self._types_of(self.settings).get("first_hour")
        try:
            first = first_hour_beside(begins, wanted, now_ms)
        except ValueError as error:
            raise UsageError(f"{self.folder / SETTINGS}: types.first_hour: {error}") from error
        if first is None or self._types_of(self._beginning(first)).get("first_hour") != str(first):
            return None
        return first

    def refuse_followed(self, files: Iterable[Path]) -> None:
        """UsageError if one of these is followed already."""
        for file in files:
            for source in self._followed:
                if any(fnmatch.fnmatch(str(file), path) for path in source.get("paths", [])):
                    raise UsageError(
                        f"{file} is followed already, as source {source['name']} of "
                        f"{self.folder / SETTINGS}; `hourmark run` "
                        f"goes on with it. To begin anew, remove {self.folder}, and what the "
                        "local stack holds by "
                        "`hourmark purge --yes`"
                    )

    @property
    def _followed(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (
            tomllib.loads(self.settings).get("tailer", {}).get("sources", [])
        )
        return found

    def with_(
        self, proposals: Sequence[Proposal], zone: str, now_ms: int, begins: Hour | None
    ) -> dict[Path, str]:
        """The files that change or are new, whole. UsageError if only their author can
        change them.
        """
        settings = self._beginning(begins) if begins else self.settings
        return {
            SETTINGS: settings.rstrip("\n") + "\n" + followed_text(proposals, zone),
            **type_files(proposals),
            SOURCES: self._late_enough(lateness_seconds(proposals, now_ms)).rstrip("\n")
            + "\n"
            + sources_text(proposals),
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
            return self.sources.rstrip("\n") + "\n" + limits_text(needed)
        if limits_text(allowed) not in self.sources:
            raise UsageError(
                f"{self.folder / SOURCES}: limits.lateness_seconds is {allowed}, and must be "
                f"{needed} for the oldest line that "
                "is there to be an event; set it, then try again"
            )
        return self.sources.replace(limits_text(allowed), limits_text(needed))
