"""`hourmark tail --check`: would a start go well. Reads, asks the services for their clock, and changes nothing."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
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
from hourmark_producer.service_client import Busy, ServiceLink

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
    return [_state(config), *(_source(source) for source in config.sources), *_services(config, clock)]


def _state(config: TailerConfig) -> Checked:
    folder, subject = config.state_dir, "tailer.state_dir"
    state = StateFolder(folder, "tailer")
    try:
        if (missing := _not_writable(folder)) is not None:
            return Checked(subject, "error", f"{missing} cannot be written to by this user; name another folder, or let it")
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


def _not_writable(folder: Path) -> Path | None:
    """The folder, or the nearest one above it that is there, where it cannot be written to."""
    there = next(above for above in (folder, *folder.absolute().parents) if above.exists())
    return None if there.is_dir() and os.access(there, os.W_OK | os.X_OK) else there


def _source(source: TailedSource) -> Checked:
    subject = f"source {source.name}"
    if source.input is not None:
        return Checked(subject, "well", f"received: {source.input}")
    found = look([Pattern(path) for path in source.paths])
    files = [path for path in sorted(found.files) if not is_named_by(path, source.exclude)]
    if wrong := _problems(found, files):
        return Checked(subject, "error", f"cannot be read: {_some(wrong)}; grant access, or mount what is not there")
    if not files:
        return Checked(subject, "warning", f"nothing matches {', '.join(source.paths)} now; files that come are followed")
    size = sum(found.files[path].st_size for path in files)
    return Checked(subject, "well", f"{len(files)} files, {size:,} bytes: {_some(files)}")


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
