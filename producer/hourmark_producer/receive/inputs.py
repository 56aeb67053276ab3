"""The `input` setting of a source: parsing and validation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from hourmark.config.groups import LOOPBACK_HOSTS, TailedSource
from hourmark.config.groups import TailerSettings as TailerConfig
from hourmark.errors import ConfigError

STDIN: Final = "stdin"
JOURNAL: Final = "journald"
UDP: Final = "syslog+udp"
TLS: Final = "syslog+tls"
_SYSLOG: Final = (UDP, "syslog+tcp", TLS)
_ALLOWED: Final = (
    f"allowed: {STDIN}, {JOURNAL}, {', '.join(f'{kind}://host:port' for kind in _SYSLOG)}"
)


class ListenAddress(NamedTuple):
    """A socket address on which a source listens.

    Attributes:
        kind: URL scheme: `syslog+udp`, `syslog+tcp` or `syslog+tls`.
        host: Host name or IP address.
        port: Port number.
    """

    kind: str
    host: str
    port: int


def parse_listen_address(text: str) -> ListenAddress | None:
    """Parse the `input` setting of a source.

    Args:
        text: `stdin`, `journald` or a URL such as `syslog+tcp://127.0.0.1:5140`.

    Returns:
        The address to listen on, or None for `stdin` and `journald`, which need no socket.

    Raises:
        ValueError: The text is invalid. The message lists the allowed values.
    """
    if text in (STDIN, JOURNAL):
        return None
    parts = urlsplit(text)
    if (
        parts.scheme not in _SYSLOG
        or not parts.hostname
        or parts.port is None
        or parts.path.strip("/")
        or parts.query
    ):
        raise ValueError(_ALLOWED)
    return ListenAddress(parts.scheme, parts.hostname, parts.port)


def check_inputs(settings: TailerConfig) -> None:
    """Check the `input` settings of all sources and the settings that depend on them.

    Args:
        settings: Settings of the tailer with all sources.

    Raises:
        ConfigError: A setting is invalid or conflicts with another one. The message names it.
    """
    for number, source in enumerate(settings.sources):
        where = f"tailer.sources.{number}"
        if source.input is None:
            if not source.paths:
                raise ConfigError(f"{where}.paths is empty; list files, or set `input`")
            continue
        _check_input(source.input, where, settings)
        _check_alone(source, where)
    if sum(source.input == STDIN for source in settings.sources) > 1:
        raise ConfigError("tailer.sources: only one source can have input = 'stdin'")
    if sum(source.input == JOURNAL for source in settings.sources) > 1:
        raise ConfigError(
            "tailer.sources: only one source can have input = 'journald'; use the fields of its "
            "event type to distinguish units"
        )
    receives_syslog = any(source.input not in (None, STDIN, JOURNAL) for source in settings.sources)
    if receives_syslog and settings.syslog.message_bytes_max > settings.line_bytes_max:
        raise ConfigError(
            f"tailer.syslog.message_bytes_max = {settings.syslog.message_bytes_max} is more "
            "than tailer.line_bytes_max = "
            f"{settings.line_bytes_max}: a message becomes a line"
        )


def _check_input(text: str, where: str, settings: TailerConfig) -> None:
    try:
        address = parse_listen_address(text)
    except ValueError:
        raise ConfigError(f"{where}.input = {text!r:.200}: {_ALLOWED}") from None
    if address is not None and address.kind == TLS and settings.syslog.tls.certificate is None:
        raise ConfigError(f"{where}.input = {text!r} needs tailer.syslog.tls.certificate")
    if (
        address is not None
        and address.host not in LOOPBACK_HOSTS
        and not settings.syslog.beyond_loopback
    ):
        raise ConfigError(
            f"{where}.input = {text!r} accepts data from other machines, which needs "
            "tailer.syslog.beyond_loopback = true. Allowed without it: "
            f"{', '.join(LOOPBACK_HOSTS)}"
        )


def _check_alone(source: TailedSource, where: str) -> None:
    others: Sequence[tuple[str, bool]] = [
        ("paths", bool(source.paths)),
        ("record_start", source.record_start is not None),
        ("format", source.format != "plain"),
        ("exclude", bool(source.exclude)),
        ("read_from", source.read_from != "start" and source.input != JOURNAL),
        ("ignore_older_seconds", source.ignore_older_seconds is not None),
    ]
    if given := [name for name, is_given in others if is_given]:
        raise ConfigError(
            f"{where}.{given[0]} cannot be combined with `input`: every received message "
            "is one line"
        )
