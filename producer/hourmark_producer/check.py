"""`hourmark tail --check`, and what a start of the tailer needs.

What a start of the tailer needs and its settings alone do not show: files, folders, addresses and
programs.

A reload checks this before the running tailer ends, and `hourmark tail --check` reports it: so
neither accepts a configuration that a start refuses. Nothing is changed, sent or delivered.

`hourmark tail --check`: would a start go well. Reads, asks the services for their clock, and
changes nothing.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

from hourmark.clock import Clock
from hourmark.config.groups import TailedSource
from hourmark.config.groups import Tailer as TailerConfig
from hourmark.config.redaction import shown
from hourmark.errors import ConfigError, HourmarkError
from hourmark.process.certificates import load_cas, load_pair
from hourmark.state_folder import StateFolder
from hourmark_producer.checkpoint.generations import read_owner
from hourmark_producer.checkpoint.installation import CHECKPOINT
from hourmark_producer.checkpoint.read_only import read_snapshot
from hourmark_producer.files.patterns import (
    PathPattern,
    PatternFindings,
    matches_any_glob,
    scan_patterns,
)
from hourmark_producer.receive.inputs import JOURNAL, UDP, address_of
from hourmark_producer.receive.sockets import listening
from hourmark_producer.send.client import Busy, ServiceLink
from hourmark_producer.send.credentials import Credentials
from hourmark_producer.send.services import Services

_JOURNALCTL: Final = "journalctl"
_TLS: Final = "tailer.syslog.tls"


def check_services(config: TailerConfig, clock: Clock) -> None:
    """Raise ConfigError where a service's URL, the token or a certificate cannot be used."""
    Services(config.service_urls, clock, config.backoff_max_seconds, config.token_file)
    Credentials(config, clock)


def check_received(config: TailerConfig, listened: frozenset[str] = frozenset()) -> None:
    """Raise ConfigError where a source cannot receive as its `input` says.

    Args: config: Settings of the tailer. listened: Inputs that this process listens at already;
        their addresses are in use, by itself.
    """
    if config.syslog.tls.certificate is not None and any(
        (one.input or "").startswith("syslog+tls") for one in config.sources
    ):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load_pair(context, _TLS, config.syslog.tls.certificate, config.syslog.tls.key)
        if config.syslog.tls.client_ca is not None:
            load_cas(context, f"{_TLS}.client_ca", config.syslog.tls.client_ca)
    for source in config.sources:
        if source.input is None or source.input in listened:
            continue
        if source.input == JOURNAL and shutil.which(_JOURNALCTL) is None:
            raise ConfigError(
                f"source {source.name}: {_JOURNALCTL} is not on the PATH; input = "
                "'journald' needs it"
            )
        if (address := address_of(source.input)) is not None:
            kind = socket.SOCK_DGRAM if address.kind == UDP else socket.SOCK_STREAM
            listening((address.host, address.port), kind, source.name).close()


def unwritable_folders(config: TailerConfig) -> Iterator[tuple[str, Path]]:
    """Yield each setting whose folder cannot be written to by this user, and the path that is in
    the way.
    """
    for setting, folder in (
        ("tailer.state_dir", config.state_dir),
        ("tailer.second_state_dir", config.second_state_dir),
    ):
        if folder is not None and (in_the_way := not_writable(folder)) is not None:
            yield setting, in_the_way


def not_writable(folder: Path) -> Path | None:
    """Return the folder, or the nearest path above it that exists, where it cannot be written to;
    None where it can.
    """
    there = next(above for above in (folder, *folder.absolute().parents) if os.path.lexists(above))
    return None if there.is_dir() and os.access(there, os.W_OK | os.X_OK) else there


def check_reload(config: TailerConfig, running: TailerConfig, host_id: str, clock: Clock) -> None:
    """Raise ConfigError where a running tailer cannot go on with other settings.

    Args:
        config: The settings as they are to be.
        running: Those of the running tailer.
        host_id: The running tailer's.
        clock: Of this host.
    """
    if config.state_dir.resolve() != running.state_dir.resolve():
        raise ConfigError(
            f"tailer.state_dir = {str(config.state_dir)!r} is not {str(running.state_dir)!r}, "
            "which this tailer runs on: with "
            "another folder it is another host, and sends every file again. To move the "
            "folder, stop the tailer, move all that "
            "is in it, and start the tailer"
        )
    for setting, path in unwritable_folders(config):
        raise ConfigError(
            f"{setting}: {path} cannot be written to by this user; name another folder, "
            "or grant access"
        )
    if config.second_state_dir is not None and (
        known := read_owner(config.second_state_dir)
    ) not in (
        None,
        host_id,
    ):
        raise ConfigError(
            f"tailer.second_state_dir = {str(config.second_state_dir)!r} belongs to host "
            f"id {known}, not {host_id}"
        )
    check_services(config, clock)
    check_received(
        config, frozenset(source.input for source in running.sources if source.input is not None)
    )


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
            return Checked(
                setting,
                "error",
                f"{path} cannot be written to by this user; name another folder, or grant access",
            )
        host_id, path = state.host_id(), folder / CHECKPOINT
        if not path.exists() and host_id is not None:
            return Checked(
                subject,
                "error",
                f"{folder} has a host id but no checkpoint: put {path.name} back, or "
                "start with --reread",
            )
        known = read_snapshot(path) if path.exists() else None
    except HourmarkError as error:
        return Checked(subject, "error", str(error))
    if known is None:
        return Checked(subject, "well", f"{folder}: a first start, which makes it")
    holder = state.holder()
    runs = (
        f"; a tailer runs on it (process {holder}), a second one would be refused" if holder else ""
    )
    return Checked(subject, "well", f"{folder}: {len(known.files)} files are known{runs}")


def _received(config: TailerConfig) -> Iterator[Checked]:
    """What a start would meet as it begins to receive. A running tailer has its addresses
    itself.
    """
    try:
        check_received(config)
    except ConfigError as error:
        runs = StateFolder(config.state_dir, "tailer").holder() is not None
        yield Checked(
            "input", "warning" if runs else "error", f"{error}{_BY_ITSELF if runs else ''}"
        )


def _source(source: TailedSource) -> Iterator[Checked]:
    subject = f"source {source.name}"
    if source.input is not None:
        yield Checked(subject, "well", f"received: {source.input}")
        return
    found = scan_patterns([PathPattern(path) for path in source.paths])
    files = [path for path in sorted(found.files) if not matches_any_glob(path, source.exclude)]
    if wrong := _problems(found, files):
        yield Checked(
            subject,
            "error",
            f"cannot be read: {_some(wrong)}; grant access, or mount what is not there",
        )
        return
    for pattern in source.paths:
        if (said := _pattern_warning(pattern, source)) is not None:
            yield Checked(subject, "warning", said)
    if files:
        size = sum(found.files[path].st_size for path in files)
        yield Checked(subject, "well", f"{len(files)} files, {size:,} bytes: {_some(files)}")


def _pattern_warning(pattern: str, source: TailedSource) -> str | None:
    found = scan_patterns([PathPattern(pattern)])
    if any(not matches_any_glob(path, source.exclude) for path in found.files):
        return None
    why = ""
    if found.files:
        why = f": `exclude` leaves out all {len(found.files)} files that do"
    elif found.compressed:
        why = f" but {len(found.compressed)} compressed files, which are not followed"
    elif any("**" in part and part != "**" for part in pattern.split("/")):
        why = (
            ": `**` matches folders only as a whole part of a path, as in "
            "/var/log/**/app.log; elsewhere it is as `*`"
        )
    elif _UNUSUAL.search(pattern):
        why = (
            ": only `*`, `?`, `[…]` and `**` are special; environment variables, `~` and "
            "`@(…)` are not expanded"
        )
    return f"nothing matches {pattern} now{why}; files that come are followed"


def _problems(found: PatternFindings, files: list[str]) -> list[str]:
    unreadable = [f"{path}: not by this user" for path in files if not os.access(path, os.R_OK)]
    return [
        f"{path}: {error.strerror}" for path, error in sorted(found.problems.items())
    ] + unreadable


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
            yield Checked(
                subject,
                "well" if rules else "warning",
                f"answers, rules revision {rules}" if rules else none,
            )
        finally:
            link.close()
