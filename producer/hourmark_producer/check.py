"""Checks that a start of the tailer would succeed: `hourmark tail --check` and reloads.

The checks cover what the settings alone do not show: files, folders, addresses, programs and
certificates. A reload runs them before the running tailer ends, so it never accepts a configuration
that a start refuses. Nothing is modified, sent or delivered; `--check` requests the clock and rules
of each service.
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
from hourmark.config.globs import matches_any_glob
from hourmark.config.groups import TailedSource
from hourmark.config.groups import TailerSettings as TailerConfig
from hourmark.config.redaction import redact_setting
from hourmark.errors import ConfigError, HourmarkError
from hourmark.process.certificates import load_ca_certificates, load_certificate
from hourmark.state_folder import StateFolder
from hourmark_producer.checkpoint.generations import read_owner
from hourmark_producer.checkpoint.installation import CHECKPOINT
from hourmark_producer.checkpoint.read_only import read_snapshot
from hourmark_producer.files.patterns import (
    PathPattern,
    PatternFindings,
    scan_patterns,
)
from hourmark_producer.receive.inputs import JOURNAL, UDP, parse_listen_address
from hourmark_producer.receive.sockets import open_listener
from hourmark_producer.send.client import DeliveryServiceClient, NoServiceAvailable
from hourmark_producer.send.credentials import Credentials
from hourmark_producer.send.services import ServiceSelector

_JOURNALCTL: Final = "journalctl"
_TLS: Final = "tailer.syslog.tls"


def check_services(config: TailerConfig, clock: Clock) -> None:
    """Check that the service URLs, the token file and the TLS certificates can be loaded.

    No request is sent.

    Args:
        config: Settings of the tailer.
        clock: Clock of this host.

    Raises:
        ConfigError: A setting cannot be used. The message names it.
    """
    ServiceSelector(config.service_urls, clock, config.backoff_max_seconds, config.token_file)
    Credentials(config, clock)


def check_receiving_inputs(config: TailerConfig, open_inputs: frozenset[str] = frozenset()) -> None:
    """Check that every source that receives data (syslog, journal) can be started.

    The function loads the certificates, looks up the program `journalctl`, and binds and releases
    each address.

    Args:
        config: Settings of the tailer.
        open_inputs: Values of `input` on which this process already listens. They are not checked.

    Raises:
        ConfigError: A certificate cannot be loaded, the program is missing, or an address cannot be
            bound. The message names the setting or source.
    """
    if config.syslog.tls.certificate is not None and any(
        (one.input or "").startswith("syslog+tls") for one in config.sources
    ):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load_certificate(context, _TLS, config.syslog.tls.certificate, config.syslog.tls.key)
        if config.syslog.tls.client_ca is not None:
            load_ca_certificates(context, f"{_TLS}.client_ca", config.syslog.tls.client_ca)
    for source in config.sources:
        if source.input is None or source.input in open_inputs:
            continue
        if source.input == JOURNAL and shutil.which(_JOURNALCTL) is None:
            raise ConfigError(
                f"source {source.name}: {_JOURNALCTL} is not on the PATH; input = "
                "'journald' needs it"
            )
        if (address := parse_listen_address(source.input)) is not None:
            kind = socket.SOCK_DGRAM if address.kind == UDP else socket.SOCK_STREAM
            open_listener((address.host, address.port), kind, source.name).close()


def unwritable_folders(config: TailerConfig) -> Iterator[tuple[str, Path]]:
    """Yield the configured folders that this user cannot write to.

    The settings `state_dir` and `second_state_dir` are checked. Nothing is yielded if both are
    writable.

    Args:
        config: Settings of the tailer.

    Yields:
        The name of the setting, and the path that prevents writing.
    """
    for setting, folder in (
        ("tailer.state_dir", config.state_dir),
        ("tailer.second_state_dir", config.second_state_dir),
    ):
        if folder is not None and (in_the_way := nearest_unwritable_path(folder)) is not None:
            yield setting, in_the_way


def nearest_unwritable_path(folder: Path) -> Path | None:
    """Find the path that prevents this user from writing to a folder.

    If the folder does not exist, its nearest existing parent is checked instead.

    Args:
        folder: The folder, which need not exist.

    Returns:
        The path that is not writable or is not a folder; None if the folder is writable.
    """
    there = next(above for above in (folder, *folder.absolute().parents) if os.path.lexists(above))
    return None if there.is_dir() and os.access(there, os.W_OK | os.X_OK) else there


def check_reload(config: TailerConfig, running: TailerConfig, host_id: str, clock: Clock) -> None:
    """Check that a running tailer can be restarted with new settings.

    Args:
        config: The new settings.
        running: The settings of the running tailer. The addresses on which it listens are not
            checked.
        host_id: Host id of the running tailer.
        clock: Clock of this host.

    Raises:
        ConfigError: The setting `state_dir` differs, a folder is not writable, `second_state_dir`
            belongs to another host, or a service or input cannot be used.
    """
    if config.state_dir.resolve() != running.state_dir.resolve():
        raise ConfigError(
            f"tailer.state_dir = {str(config.state_dir)!r} is not {str(running.state_dir)!r}, "
            "the folder of the running tailer: with another folder, the tailer would be a new "
            "host and send every file again. To move the folder, stop the tailer, move the "
            "content of the folder, and start the tailer"
        )
    for setting, path in unwritable_folders(config):
        raise ConfigError(
            f"{setting}: {path} cannot be written to by this user; use another folder, or grant "
            "access"
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
    check_receiving_inputs(
        config, frozenset(source.input for source in running.sources if source.input is not None)
    )


_MAYBE_OWN_LISTENER: Final = (
    "; a tailer is running with this tailer.state_dir and may already use the address"
)
_UNUSUAL: Final = re.compile(r"[$~]|[@!+]\(")
NAMED: Final = 5  # files listed per source; the others are only counted

Level = Literal["well", "warning", "error"]


@dataclasses.dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check of `hourmark tail --check`.

    Attributes:
        subject: What was checked, such as a setting, source or service.
        level: `error` if the tailer would not work, `warning` if the finding may be intended,
            `well` if there is no problem.
        said: The finding and, if there is a problem, how to fix it. This is also the key in the
            JSON output.
    """

    subject: str
    level: Level
    said: str


def run_startup_checks(config: TailerConfig, clock: Clock) -> list[CheckResult]:
    """Run all checks in the order in which a start performs them, and return their results.

    The state folder is checked first, then the inputs, the files of each source, and the services.
    A service that does not answer is a warning. Failed checks are results; they are not raised.

    Args:
        config: Settings that `validate_settings` has accepted.
        clock: Clock of this host.
    """
    return [
        _state(config),
        *_check_receiving(config),
        *(one for source in config.sources for one in _source(source)),
        *_services(config, clock),
    ]


def _state(config: TailerConfig) -> CheckResult:
    folder, subject = config.state_dir, "tailer.state_dir"
    state = StateFolder(folder, "tailer")
    try:
        for setting, path in unwritable_folders(config):
            return CheckResult(
                setting,
                "error",
                f"{path} cannot be written to by this user; use another folder, or grant access",
            )
        host_id, path = state.host_id(), folder / CHECKPOINT
        if not path.exists() and host_id is not None:
            return CheckResult(
                subject,
                "error",
                f"{folder} has a host id but no checkpoint: restore {path.name}, or start with "
                "--reread",
            )
        known = read_snapshot(path) if path.exists() else None
    except HourmarkError as error:
        return CheckResult(subject, "error", str(error))
    if known is None:
        return CheckResult(
            subject, "well", f"{folder}: does not exist yet; the first start creates it"
        )
    holder = state.holder()
    runs = (
        f"; a tailer is running with it (process {holder}), so a second one would not start"
        if holder
        else ""
    )
    return CheckResult(subject, "well", f"{folder}: {len(known.files)} files are known{runs}")


def _check_receiving(config: TailerConfig) -> Iterator[CheckResult]:
    # a running tailer uses these addresses itself, so an error may only mean that
    try:
        check_receiving_inputs(config)
    except ConfigError as error:
        runs = StateFolder(config.state_dir, "tailer").holder() is not None
        yield CheckResult(
            "input", "warning" if runs else "error", f"{error}{_MAYBE_OWN_LISTENER if runs else ''}"
        )


def _source(source: TailedSource) -> Iterator[CheckResult]:
    subject = f"source {source.name}"
    if source.input is not None:
        yield CheckResult(subject, "well", f"received: {source.input}")
        return
    found = scan_patterns([PathPattern(path) for path in source.paths])
    files = [path for path in sorted(found.files) if not matches_any_glob(path, source.exclude)]
    if wrong := _problems(found, files):
        yield CheckResult(
            subject,
            "error",
            f"cannot be read: {_some(wrong)}; grant access, or mount the missing file systems",
        )
        return
    for pattern in source.paths:
        if (said := _pattern_warning(pattern, source)) is not None:
            yield CheckResult(subject, "warning", said)
    if files:
        size = sum(found.files[path].st_size for path in files)
        yield CheckResult(subject, "well", f"{len(files)} files, {size:,} bytes: {_some(files)}")


def _pattern_warning(pattern: str, source: TailedSource) -> str | None:
    found = scan_patterns([PathPattern(pattern)])
    if any(not matches_any_glob(path, source.exclude) for path in found.files):
        return None
    why = ""
    if found.files:
        why = f": `exclude` excludes all {len(found.files)} matching files"
    elif found.compressed:
        why = f" except {len(found.compressed)} compressed files, which are not tailed"
    elif any("**" in part and part != "**" for part in pattern.split("/")):
        why = (
            ": `**` matches folders only if it is a whole part of a path, as in "
            "/var/log/**/app.log; otherwise it is the same as `*`"
        )
    elif _UNUSUAL.search(pattern):
        why = (
            ": only `*`, `?`, `[…]` and `**` are special; environment variables, `~` and "
            "`@(…)` are not expanded"
        )
    return f"nothing matches {pattern} now{why}; files that appear later are tailed"


def _problems(found: PatternFindings, files: list[str]) -> list[str]:
    unreadable = [f"{path}: not by this user" for path in files if not os.access(path, os.R_OK)]
    return [
        f"{path}: {error.strerror}" for path, error in sorted(found.problems.items())
    ] + unreadable


def _some(names: list[str]) -> str:
    more = f", and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _services(config: TailerConfig, clock: Clock) -> Iterator[CheckResult]:
    for url in config.service_urls:
        subject = f"service {redact_setting(url)}"
        try:
            link = DeliveryServiceClient(config.model_copy(update={"service_urls": [url]}), clock)
        except ConfigError as error:
            yield CheckResult(subject, "error", str(error))
            return  # token and certificates are the same for all services
        try:
            rules = link.current_reading().rules
        except NoServiceAvailable as error:
            yield CheckResult(subject, "warning", f"{error}; lines wait until it responds")
        except HourmarkError as error:
            yield CheckResult(subject, "error", str(error))
        else:
            none = "it has no rules yet; run `hourmark types apply`"
            yield CheckResult(
                subject,
                "well" if rules else "warning",
                f"responds, rules revision {rules}" if rules else none,
            )
        finally:
            link.close()
