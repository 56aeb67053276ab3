"""What a proposal is as files: declarations of types and sources, and a configuration, all with
comments. Pure.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from hourmark.config.groups import EventTimeLimits
from hourmark.config.toml_text import render_toml, toml_value
from hourmark.records.hours import Hour
from hourmark_declare.proposing.choosing import Proposal

SOURCES, SETTINGS = Path("types/sources.toml"), Path("hourmark.toml")
_DAY: Final = 86_400


class Choices(NamedTuple):
    """What a proposal cannot know.

    `first_hour`: says how long buckets are, too. `storage_root` None: the stack's.
    """

    first_hour: Hour
    zone: str
    storage_root: str | None
    now_ms: int


def files_of(proposals: Sequence[Proposal], folder: Path, choices: Choices) -> dict[Path, str]:
    """All files below the folder, by their paths within it."""
    return {
        SETTINGS: _settings(proposals, folder, choices),
        **type_files(proposals),
        SOURCES: _sources(proposals, choices),
    }


def type_files(proposals: Sequence[Proposal]) -> dict[Path, str]:
    """Of types that are declared; that of system logs is known."""
    return {Path("types", f"{p.name}.toml"): _type_file(p) for p in proposals if p.candidate.line}


def lateness_seconds(proposals: Sequence[Proposal], now_ms: int) -> int:
    """How far behind the clock a line may be, so that those that are there already are events: a
    day more than the oldest is.
    """
    oldest = min(
        (_unix_s(p.oldest) for p in proposals if p.oldest is not None), default=now_ms / 1000
    )
    return max(EventTimeLimits().lateness_seconds, (int(now_ms / 1000 - oldest) // _DAY + 2) * _DAY)


def _type_file(p: Proposal) -> str:
    text = (
        f"# Proposed by `hourmark init` for {p.candidate.form}: {p.fitting:,} of {p.records:,} "
        "records of\n"
        f"# {p.sample.path} have it. Docs: docs/event-types.md. Try a change, in this folder:\n"
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
    """A value that the field would have, as a comment."""
    values = (
        json.dumps(value) for row in rows if (value := row.get(field["name"])) not in (None, {}, "")
    )
    value = next(values, "")
    return f"  # {value[:60]}{' …' if len(value) > 60 else ''}" if value else ""


def _sources(proposals: Sequence[Proposal], choices: Choices) -> str:
    text = (
        "# Where lines come from, and what they may be. The tailer's sources have the same names.\n"
    )
    text += sources_text(proposals).lstrip("\n")
    if (
        lateness := lateness_seconds(proposals, choices.now_ms)
    ) > EventTimeLimits().lateness_seconds:
        text += limits_text(lateness)
    return text


def sources_text(proposals: Sequence[Proposal]) -> str:
    """Their declarations, for `sources.toml`."""
    return render_toml({"source": [p.candidate.source(p.name) for p in proposals]})


def limits_text(lateness: int) -> str:
    """The allowed lateness, for `sources.toml`."""
    return (
        f"\n[limits]\n# {lateness // _DAY} days, so that the oldest line that is there is an "
        "event. The default is "
        f"{EventTimeLimits().lateness_seconds // _DAY}; a line that\n# is older when it is read is a "
        "dead letter.\n"
        f"lateness_seconds = {lateness}\n"
    )


def followed_text(proposals: Sequence[Proposal], zone: str) -> str:
    """What the tailer follows, for `hourmark.toml`."""
    text = ""
    for p in proposals:
        start = {"record_start": p.candidate.record_start} if p.candidate.record_start else {}
        text += render_toml(
            {
                "tailer": {
                    "sources": [
                        {"name": p.name, "paths": [str(p.sample.path)], "zone": zone, **start}
                    ]
                }
            }
        )
    return text


def _settings(proposals: Sequence[Proposal], folder: Path, choices: Choices) -> str:
    text = (
        "# Written by `hourmark init`. Every setting there is: docs/configuration.md, or "
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
    return text + followed_text(proposals, choices.zone)


def _unix_s(text: str) -> float:
    return dt.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
