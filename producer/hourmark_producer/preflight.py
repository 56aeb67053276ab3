"""What a start of the tailer needs and its settings alone do not show: files, folders, addresses and programs.

A reload checks this before the running tailer ends, and `hourmark tail --check` reports it: so neither accepts a configuration
that a start refuses. Nothing is changed, sent or delivered.
"""

from __future__ import annotations

import os
import shutil
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hourmark.certificates import load_cas, load_pair
from hourmark.clock import Clock
from hourmark.config_groups import Tailer as TailerConfig
from hourmark.errors import ConfigError
from hourmark_producer.credentials import Credentials
from hourmark_producer.generations import owner
from hourmark_producer.services import Services
from hourmark_producer.spool.inputs import JOURNAL, UDP, address_of
from hourmark_producer.spool.streams import listening

_JOURNALCTL: Final = "journalctl"
_TLS: Final = "tailer.syslog.tls"


def check_services(config: TailerConfig, clock: Clock) -> None:
    """Raise ConfigError where a service's URL, the token or a certificate cannot be used."""
    Services(config.service_urls, clock, config.backoff_max_seconds, config.token_file)
    Credentials(config, clock)


def check_received(config: TailerConfig, listened: frozenset[str] = frozenset()) -> None:
    """Raise ConfigError where a source cannot receive as its `input` says.

    Args:
        config: Settings of the tailer.
        listened: Inputs that this process listens at already; their addresses are in use, by itself.
    """
    if config.syslog.tls.certificate is not None and any((one.input or "").startswith("syslog+tls") for one in config.sources):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load_pair(context, _TLS, config.syslog.tls.certificate, config.syslog.tls.key)
        if config.syslog.tls.client_ca is not None:
            load_cas(context, f"{_TLS}.client_ca", config.syslog.tls.client_ca)
    for source in config.sources:
        if source.input is None or source.input in listened:
            continue
        if source.input == JOURNAL and shutil.which(_JOURNALCTL) is None:
            raise ConfigError(f"source {source.name}: {_JOURNALCTL} is not on the PATH; input = 'journald' needs it")
        if (address := address_of(source.input)) is not None:
            kind = socket.SOCK_DGRAM if address.kind == UDP else socket.SOCK_STREAM
            listening((address.host, address.port), kind, source.name).close()


def unwritable_folders(config: TailerConfig) -> Iterator[tuple[str, Path]]:
    """Yield each setting whose folder cannot be written to by this user, and the path that is in the way."""
    for setting, folder in (("tailer.state_dir", config.state_dir), ("tailer.second_state_dir", config.second_state_dir)):
        if folder is not None and (in_the_way := not_writable(folder)) is not None:
            yield setting, in_the_way


def not_writable(folder: Path) -> Path | None:
    """Return the folder, or the nearest path above it that exists, where it cannot be written to; None where it can."""
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
            f"tailer.state_dir = {str(config.state_dir)!r} is not {str(running.state_dir)!r}, which this tailer runs on: with "
            "another folder it is another host, and sends every file again. To move the folder, stop the tailer, move all that "
            "is in it, and start the tailer"
        )
    for setting, path in unwritable_folders(config):
        raise ConfigError(f"{setting}: {path} cannot be written to by this user; name another folder, or grant access")
    if config.second_state_dir is not None and (known := owner(config.second_state_dir)) not in (None, host_id):
        raise ConfigError(f"tailer.second_state_dir = {str(config.second_state_dir)!r} belongs to host id {known}, not {host_id}")
    check_services(config, clock)
    check_received(config, frozenset(source.input for source in running.sources if source.input is not None))
