"""`hourmark tail --check`: would a start go well. Reads, asks the services for their clock, and changes nothing."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator
from typing import Final, Literal

from hourmark.clock import Clock
from hourmark.config_groups import TailedSource
from hourmark.config_groups import Tailer as TailerConfig
from hourmark.errors import ConfigError, HourmarkError
from hourmark.hidden import shown
from hourmark.state_folder import StateFolder
from hourmark_producer.discovery import Findings, Pattern, look
from hourmark_producer.exclusion import is_named_by
from hourmark_producer.installation import CHECKPOINT
from hourmark_producer.peek import peek
from hourmark_producer.preflight import check_received, unwritable_folders
from hourmark_producer.service_client import Busy, ServiceLink

_BY_ITSELF: Final = "; a tailer runs on this tailer.state_dir, and listens there itself, perhaps"
_UNUSUAL: Final = re.compile(r"[$~]|[@!+]\(")
NAMED: Final = 5  # files of a source; the others are counted

Level = Literal["well", "warning", "error"]


@dataclasses.dataclass(frozen=True, slots=True)
class Checked:
    """One answer. An error keeps a tailer from its work, a warning may be as it shall be."""

    subject: str
    level: Level
    said: str


def check(config: TailerConfig, clock: Clock) -> list[Checked]:
    """Everything, in the order of a start; `config` is in order by itself."""
    return [
        _state(config),
        *_received(config),
        *(one for source in config.sources for one in _source(source)),
        *_services(config, clock),
    ]


def _state(config: TailerConfig) -> Checked:
    folder, subject = config.state_dir, "tailer.state_dir"
    state = StateFolder(folder, "tailer")
    try:
        for setting, path in unwritable_folders(config):
            return Checked(setting, "error", f"{path} cannot be written to by this user; name another folder, or grant access")
        host_id, path = state.host_id(), folder / CHECKPOINT
        if not path.exists() and host_id is not None:
            return Checked(
                subject, "error", f"{folder} has a host id but no checkpoint: put {path.name} back, or start with --reread"
            )
        known = peek(path) if path.exists() else None
    except HourmarkError as error:
        return Checked(subject, "error", str(error))
    if known is None:
        return Checked(subject, "well", f"{folder}: a first start, which makes it")
    holder = state.holder()
    runs = f"; a tailer runs on it (process {holder}), a second one would be refused" if holder else ""
    return Checked(subject, "well", f"{folder}: {len(known.files)} files are known{runs}")


def _received(config: TailerConfig) -> Iterator[Checked]:
    """What a start would meet as it begins to receive. A running tailer has its addresses itself."""
    try:
        check_received(config)
    except ConfigError as error:
        runs = StateFolder(config.state_dir, "tailer").holder() is not None
        yield Checked("input", "warning" if runs else "error", f"{error}{_BY_ITSELF if runs else ''}")


def _source(source: TailedSource) -> Iterator[Checked]:
    subject = f"source {source.name}"
    if source.input is not None:
        yield Checked(subject, "well", f"received: {source.input}")
        return
    found = look([Pattern(path) for path in source.paths])
    files = [path for path in sorted(found.files) if not is_named_by(path, source.exclude)]
    if wrong := _problems(found, files):
        yield Checked(subject, "error", f"cannot be read: {_some(wrong)}; grant access, or mount what is not there")
        return
    for pattern in source.paths:
        if (said := _pattern_warning(pattern, source)) is not None:
            yield Checked(subject, "warning", said)
    if files:
        size = sum(found.files[path].st_size for path in files)
        yield Checked(subject, "well", f"{len(files)} files, {size:,} bytes: {_some(files)}")


def _pattern_warning(pattern: str, source: TailedSource) -> str | None:
    found = look([Pattern(pattern)])
    if any(not is_named_by(path, source.exclude) for path in found.files):
        return None
    why = ""
    if found.files:
        why = f": `exclude` leaves out all {len(found.files)} files that do"
    elif found.compressed:
        why = f" but {len(found.compressed)} compressed files, which are not followed"
    elif any("**" in part and part != "**" for part in pattern.split("/")):
        why = ": `**` matches folders only as a whole part of a path, as in /var/log/**/app.log; elsewhere it is as `*`"
    elif _UNUSUAL.search(pattern):
        why = ": only `*`, `?`, `[…]` and `**` are special; environment variables, `~` and `@(…)` are not expanded"
    return f"nothing matches {pattern} now{why}; files that come are followed"


def _problems(found: Findings, files: list[str]) -> list[str]:
    unreadable = [f"{path}: not by this user" for path in files if not os.access(path, os.R_OK)]
    return [f"{path}: {error.strerror}" for path, error in sorted(found.problems.items())] + unreadable


def _some(names: list[str]) -> str:
    more = f", and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _services(config: TailerConfig, clock: Clock) -> Iterator[Checked]:
    for url in config.service_urls:
        subject = f"service {shown(url)}"
        try:
            link = ServiceLink(config.model_copy(update={"service_urls": [url]}), clock)
        except ConfigError as error:
            yield Checked(subject, "error", str(error))
            return  # of token or certificates, which are those of all
        try:
            rules = link.fresh().rules
        except Busy as error:
            yield Checked(subject, "warning", f"{error}; lines wait until it answers")
        except HourmarkError as error:
            yield Checked(subject, "error", str(error))
        else:
            none = "it knows no rules yet; run `hourmark types apply`"
            yield Checked(subject, "well" if rules else "warning", f"answers, rules revision {rules}" if rules else none)
        finally:
            link.close()
