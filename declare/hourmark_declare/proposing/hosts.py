"""Recognizes the keys, columns and values that name the host which wrote a log line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

# In order of preference, in lower case without punctuation.
_NAMES: Final = (
    *("hostname", "host", "computername", "computer", "scomputername", "machine", "machinename"),
    *("node", "nodename", "server", "servername", "serverhostname", "hostidentifier", "fqdn"),
    *("devname", "devicename", "devicehostname", "dvchost", "dvc", "sysname", "systemname"),
    *("hosthostname", "agenthostname", "beathostname", "observername", "observerhostname"),
    *("srchostname", "instancename", "localhostname", "originhost", "loghost", "reportinghost"),
    *("sensorname", "sensorhostname", "appliancename", "gatewayname", "vmname", "hostfqdn"),
)
_OF_ANY_MACHINE: Final = frozenset(("hostname", "host", "machine", "machinename", "fqdn"))
_HARDWARE_ADDRESS: Final = re.compile(
    r"[0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2}){5}|(?:[0-9A-Fa-f]{4}\.){2}[0-9A-Fa-f]{4}"
)
_HARDWARE_DIGITS: Final = re.compile(rf"{_HARDWARE_ADDRESS.pattern}|[0-9A-Fa-f]{{12}}")
_HARDWARE_KEY: Final = re.compile(r"(?i)(?:\b|_)(?:mac|hw|hardware|ether)|mac$|Mac")
_FEW: Final = 10  # values; that so few differ says nothing
_NAMED_HOST: Final = re.compile(r"(?P<whose>|[a-z]{2,}?)host(?:name|id|identifier|fqdn)?")
_OTHERS: Final = re.compile(  # hosts that did not write the line
    r"cs|sc|client|remote|dest|dst|target|peer|user|request|http|url|uri|proxy|upstream|src|source|"
    r"virtual|backend|mail|smtp|forwarded|caller|query|db|database"
)
_CONSTANT: Final = re.compile(
    r"[A-Za-z][A-Za-z0-9]*(?:[-_][A-Za-z0-9]+){0,3}-\d{1,4}(?:\.[A-Za-z0-9-]+)*"
)
_OTHER_KINDS: Final = (  # what else has a number: `thread-1`, `eth0`, `SHA-256`
    *("thread", "pool", "worker", "exec", "task", "job", "step", "stage", "phase", "session"),
    *("queue", "shard", "segment", "seg", "partition", "part", "replica", "block", "blk", "disk"),
    *("cpu", "vcpu", "gpu", "nvme", "md", "loop", "slot", "unit", "lane", "channel", "chan", "kid"),
    *("eth", "ens", "lo", "wlan", "vlan", "bridge", "br", "veth", "tun", "tap", "bond", "port"),
    *("tty", "pts", "stream", "conn", "client", "child", "user", "item", "run", "seq", "msg", "id"),
    *("event", "evt", "request", "req", "txn", "tx", "level", "type", "utf", "sha", "md", "aes"),
    *("rsa", "rc", "iso", "tls", "tlsv", "ssl", "http", "ipv", "v", "x", "p", "t"),
)
_NO_HOST: Final = re.compile(rf"(?i)(?:{'|'.join(_OTHER_KINDS)})[-_.]?\d.*")
_MACHINE: Final = re.compile(
    r"(?i)node|host|srv|server|web|db|vm|ip-|compute|rack|gw|router|switch"
)
_MACHINE_NAME: Final = re.compile(
    r"(?:node|host|srv|server|web|db|vm|ip|compute|rack|gw|rtr|router|sw|switch|fw|nas|ap|lb|pc|mac|esx|esxi|edge|prod|nx|core)"
    r"-?[a-z0-9]*-?\d+(?:-[a-z0-9]+)*(?:\.[a-z0-9-]+)*"
)
_FULL_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]*\d(?:\.[A-Za-z][A-Za-z0-9-]*){2,}")
_FEW_NAMES: Final = 0.2  # share of different names; more are those of clients
_THREAD_SHAPE: Final = re.compile(r"(?i).*(?:thread|exec|pool|-nio|dispatcher)")
_HOST_SHAPE: Final = re.compile(
    r"[A-Za-z][A-Za-z0-9-]*(?::[A-Za-z][A-Za-z0-9-]*)?(?<=[0-9])(?:\.[A-Za-z0-9-]+)*"
    r"|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.(?:com|net|org|local|internal|lan|edu|gov|io|corp)"
    r"|localhost"
)
_OF_REQUESTS: Final = frozenset(("method", "request", "request_method", "uri", "url", "path"))
_MOST: Final = 0.9


def host_rank(name: str) -> int | None:
    """Rank the name of a key or column by how likely its value is the host that wrote the line.

    Args:
        name: Name of the key. Spellings such as `hostName`, `host.name` and `HOST-NAME` are
            equivalent.

    Returns:
        A number that is lower for more likely names. None if the name does not denote a host, or
        denotes another host, such as `client_host`.
    """
    plain = _plain(name)
    if plain in _NAMES:
        return _NAMES.index(plain)
    match = _NAMED_HOST.fullmatch(plain)
    return len(_NAMES) if match is not None and not _OTHERS.match(match["whose"]) else None


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def first_host_key(names: Iterable[str]) -> str | None:
    """Return the key whose name most likely denotes the host that wrote the line.

    If the keys include one of an HTTP request, such as `method` or `uri`, then `host` and
    `server_name` denote the host of the request and are ignored.

    Args:
        names: Names of all keys of a line.

    Returns:
        The name of the key; None if no name denotes a host.
    """
    names = [*names]
    if {name.lower() for name in names} & _OF_REQUESTS:
        names = [name for name in names if name.lower() not in ("host", "server_name")]
    ranked = [
        (rank, number, name)
        for number, name in enumerate(names)
        if (rank := host_rank(name)) is not None
    ]
    return min(ranked, default=(0, 0, None))[2]


def choose_host_key(
    columns: Mapping[str, Sequence[Any]], rows: int, *, is_exact: bool = False
) -> str | None:
    """Return the key that contains the name of the host that wrote the line.

    Both the names of the keys and their values are considered. Keys whose values repeat are
    preferred. A general name, such as `Host Name`, is ignored if its values differ and another key
    contains different hardware addresses. The hosts are then clients, as in DHCP leases.

    Args:
        columns: Maps each key to its values.
        rows: Number of lines.
        is_exact: Whether only well-known names are considered.

    Returns:
        The most likely key, or None. At least 90% of the lines must have the key, and all of its
        values must be texts of 1 to 255 characters.
    """
    usable = {
        key
        for key, values in columns.items()
        if (rank := host_rank(key)) is not None
        and (rank < len(_NAMES) or not is_exact)
        and len(values) >= _MOST * rows
        and all(isinstance(value, str) and 0 < len(value) <= 255 for value in values)
        and any(value != "-" and not value.isdigit() for value in values)
    }
    usable -= {key for key in usable if _is_of_client(key, columns)}
    steady = {key for key in usable if 2 * len({*columns[key]}) <= max(rows, _FEW)}
    others = (key for key in columns if host_rank(key) is None)
    return first_host_key([*(key for key in columns if key in (steady or usable)), *others])


def _is_of_client(key: str, columns: Mapping[str, Sequence[Any]]) -> bool:
    # Whether the names of hosts differ, and so do hardware addresses beside them.
    if _plain(key) not in _OF_ANY_MACHINE or len({*columns[key]}) < 2:
        return False
    return any(_are_hardware_addresses(other, values) for other, values in columns.items())


def _are_hardware_addresses(key: str, values: Sequence[Any]) -> bool:
    texts = {value for value in values if isinstance(value, str) and value != "-"}
    search = _HARDWARE_ADDRESS if not _HARDWARE_KEY.search(key) else _HARDWARE_DIGITS
    return len(texts) > 1 and all(map(search.fullmatch, texts))


def is_constant_host(values: Sequence[str]) -> bool:
    """Return whether a column contains the same host name, such as `NPS-1`, in all rows.

    Returns False if there are fewer than ten rows, or if the value may denote something other than
    a host, such as `thread-1`.
    """
    return (
        len(values) >= 10
        and len(set(values)) == 1
        and _CONSTANT.fullmatch(values[0]) is not None
        and not _NO_HOST.fullmatch(values[0])
    )


def are_hosts(values: Iterable[str], *, may_differ: bool = False) -> bool:
    """Return whether the values of a column look like host names, such as `web-01`.

    Args:
        values: Values of one column.
        may_differ: Whether all values may be different. If False, values must repeat, or begin with
            a word such as `node` or `srv`, because other identifiers also look like host names.

    Returns:
        True if at least 90% of the values look like host names; False if there are no values.
    """
    seen = [*values]
    hosts = sum(
        _HOST_SHAPE.fullmatch(value) is not None
        and not _THREAD_SHAPE.match(value)
        and not _NO_HOST.fullmatch(value)
        for value in seen
    )
    if not seen or hosts < 0.9 * len(seen):
        return False
    machines = sum(_MACHINE.match(value) is not None for value in seen)
    return may_differ or len(set(seen)) <= max(0.5 * len(seen), 1) or machines >= 0.9 * len(seen)


def are_machines(values: Iterable[str]) -> bool:
    """Return whether all values are host names with a number and a typical prefix, such as `web-1`.

    This check is stricter than `are_hosts`.

    Args:
        values: Values of one column; the result is False if there are none.
    """
    seen = {*values}
    return bool(seen) and all(
        _MACHINE_NAME.fullmatch(value)
        and not _THREAD_SHAPE.match(value)
        and not _NO_HOST.fullmatch(value)
        for value in seen
    )


def are_full_names(values: Sequence[str]) -> bool:
    """Return whether all values are full domain names of a few hosts, such as `app-1.example.net`.

    The first label must end with a digit, because names of classes also contain dots. At most 20%
    of the values may be different.

    Args:
        values: Values of one column; the result is False if there are none.
    """
    seen = {*values}
    return 0 < len(seen) <= max(_FEW_NAMES * len(values), 1) and all(
        _FULL_NAME.fullmatch(value) and not _NO_HOST.fullmatch(value) for value in seen
    )
