"""Renders proposals as commented files: declarations of types and sources, and a configuration."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from hourmark.config.groups import EventTimeLimits, escape_log_path
from hourmark.config.toml_text import render_toml, toml_value
from hourmark.records.hours import Hour
from hourmark_declare.proposing.selection import Proposal

SOURCES, SETTINGS = Path("types/sources.toml"), Path("hourmark.toml")
_DAY: Final = 86_400


class ConfigChoices(NamedTuple):
    """The settings of a new configuration that cannot be derived from the log files.

    Attributes:
        first_hour: First bucket of the new event types. Its length is the length of all buckets.
        zone: IANA time zone of timestamps without a time zone.
        storage_root: URL of the storage folder for buckets, such as `hdfs://namenode:8020/events`;
            None for the storage of the local stack.
        now_ms: Current time in Unix milliseconds.
    """

    first_hour: Hour
    zone: str
    storage_root: str | None
    now_ms: int


def render_files(
    proposals: Sequence[Proposal], folder: Path, choices: ConfigChoices
) -> dict[Path, str]:
    """Render all files of a new configuration.

    Args:
        proposals: The selected format of each log file.
        folder: Absolute path of the configuration folder, which is written to the settings.
        choices: Settings that cannot be derived from the log files.

    Returns:
        Maps the path of each file, relative to `folder`, to its content.
    """
    return {
        SETTINGS: _settings(proposals, folder, choices),
        **render_type_files(proposals),
        SOURCES: _sources(proposals, choices),
    }


def render_type_files(proposals: Sequence[Proposal]) -> dict[Path, str]:
    """Render the files that declare event types, one for each log file.

    Log files that are parsed by the built-in type `syslog` need no such file and are omitted.

    Args:
        proposals: The selected format of each log file.

    Returns:
        Maps the path of each file, such as `types/NAME.toml`, to its content. Paths are relative to
        the configuration folder.
    """
    return {Path("types", f"{p.name}.toml"): _type_file(p) for p in proposals if p.candidate.line}


def required_lateness_s(proposals: Sequence[Proposal], now_ms: int) -> int:
    """Return a lateness limit that is high enough for all existing lines.

    The lateness limit is the maximum age of a line when it is read. Older lines are rejected.

    Args:
        proposals: The selected format of each log file, with the time of its oldest event.
        now_ms: Current time in Unix milliseconds.

    Returns:
        The limit in seconds. It is a number of whole days that exceeds the age of the oldest event
        by one to two days, but is at least the default limit.
    """
    oldest = min(
        (_unix_s(p.oldest) for p in proposals if p.oldest is not None), default=now_ms / 1000
    )
    return max(EventTimeLimits().lateness_seconds, (int(now_ms / 1000 - oldest) // _DAY + 2) * _DAY)


def _type_file(p: Proposal) -> str:
    text = (
        f"# Proposed by `hourmark init` for {p.candidate.form}: {p.fitting:,} of {p.records:,} "
        "records of\n"
        f"# {p.sample.path} have it. Docs: docs/reference/event-types.md. Try a change, in this folder:\n"
        f"# hourmark types try --dir . --lines FILE --source {p.name}\n"
        f"name = {toml_value(p.name)}\n\n[line]\n"
    )
    text += "".join(f"{name} = {toml_value(value)}\n" for name, value in p.candidate.line.items())
    seen = [one.fields for one in p.examples]
    for field in p.candidate.fields:
        text += (
            f"\n[[fields]]\nname = {toml_value(field['name'])}\ntype = "
            f"{toml_value(field['type'])}{_example(seen, field)}\n"
        )
    return text


def _example(rows: Sequence[Mapping[str, Any]], field: Mapping[str, Any]) -> str:
    values = (
        json.dumps(value) for row in rows if (value := row.get(field["name"])) not in (None, {}, "")
    )
    value = next(values, "")
    return f"  # {value[:60]}{' …' if len(value) > 60 else ''}" if value else ""


def _sources(proposals: Sequence[Proposal], choices: ConfigChoices) -> str:
    text = (
        "# Where lines come from, and what they may be. The tailer's sources have the same names.\n"
    )
    text += render_sources(proposals).lstrip("\n")
    if (
        lateness := required_lateness_s(proposals, choices.now_ms)
    ) > EventTimeLimits().lateness_seconds:
        text += render_limits(lateness)
    return text


def render_sources(proposals: Sequence[Proposal]) -> str:
    """Render the part of `sources.toml` that declares one source for each log file.

    Args:
        proposals: The selected format of each log file.

    Returns:
        TOML text with one table `[[source]]` for each log file, in the order of `proposals`.
    """
    return render_toml({"source": [p.candidate.source(p.name) for p in proposals]})


def render_limits(lateness: int) -> str:
    """Render the part of `sources.toml` that sets the maximum age of lines.

    Args:
        lateness: Maximum age of a line in seconds. Older lines become dead letters instead of
            events.

    Returns:
        TOML text with the table `[limits]`, and a comment with the limit and the default in days.
    """
    return (
        f"\n[limits]\n# {lateness // _DAY} days, so that the oldest line that is there is an "
        "event. The default is "
        f"{EventTimeLimits().lateness_seconds // _DAY}; a line that\n# is older when it is read is a "
        "dead letter.\n"
        f"lateness_seconds = {lateness}\n"
    )


def render_tailer_sources(proposals: Sequence[Proposal], zone: str) -> str:
    """Render the part of `hourmark.toml` that specifies the log files to read.

    The tailer, which reads log files, uses these settings.

    Args:
        proposals: The selected format of each log file. A zone in the format, derived from
            abbreviations in timestamps, takes precedence over `zone`.
        zone: IANA time zone of timestamps without a time zone.

    Returns:
        TOML text with one table `[[tailer.sources]]` for each log file, in the order of
        `proposals`.
    """
    text = ""
    for p in proposals:
        start = {"record_start": p.candidate.record_start} if p.candidate.record_start else {}
        form = {"format": "cri"} if p.candidate.container_log else {}
        own_zone = p.candidate.zone or zone
        paths = [escape_log_path(p.sample.path)]  # patterns, each of which matches one file
        source = {"name": p.name, "paths": paths, "zone": own_zone, **form, **start}
        text += render_toml({"tailer": {"sources": [source]}})
    return text


def _settings(proposals: Sequence[Proposal], folder: Path, choices: ConfigChoices) -> str:
    text = (
        "# Written by `hourmark init`. Every setting there is: docs/reference/configuration.md, or "
        "`hourmark config show`.\n"
    )
    text += render_toml({"types": {"dir": str(folder / "types")}}).lstrip("\n")
    text += (
        f"first_hour = {toml_value(str(choices.first_hour))}  # where buckets of new types begin\n"
    )
    text += (
        f"\n[parsing]\nbucket_seconds = {choices.first_hour.length_s}  # length of a bucket; "
        "fixed once types were applied\n"
    )
    if choices.storage_root is not None:
        text += (
            f"\n[storage]\nroot = {toml_value(choices.storage_root)}  # closed buckets; "
            "hdfs://NAMENODE/… on a cluster\n"
        )
    return text + render_tailer_sources(proposals, choices.zone)


def _unix_s(text: str) -> float:
    return dt.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
