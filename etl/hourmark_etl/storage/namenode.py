"""Reads the status that HDFS NameNodes report on their HTTP ports, outside of WebHDFS."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from hourmark.config.groups import StorageSettings
from hourmark.errors import ConfigError
from hourmark_etl.storage.spnego import NegotiationFailed, authorizer
from hourmark_etl.storage.tls import client_context

_JMX: Final = "/jmx?qry=Hadoop:service=NameNode,name="


@dataclass(frozen=True, slots=True, kw_only=True)
class NameNodeReport:
    """The state and the attributes that one NameNode reports about itself.

    Attributes:
        address: HTTP address of the NameNode.
        state: `active`, `standby` or `observer`. None if it is unknown, for example because the
            server is a WebHDFS gateway.
        info: Attributes of the JMX bean `NameNodeInfo`, such as the safe mode, the live DataNodes
            and the number of missing blocks. None if the server does not have this bean.
        failure: Why the server did not respond; empty if it did.
    """

    address: str
    state: str | None = None
    info: Mapping[str, Any] | None = field(default=None, repr=False)
    failure: str = ""

    @property
    def serves(self) -> bool:
        """Return whether the server responds and does not report that it is not active."""
        return not self.failure and self.state in (None, "active")


def read_namenode(
    address: str,
    seconds: float,
    ca: Path | None = None,
    authorize: Callable[[str], str] | None = None,
) -> NameNodeReport:
    """Return what a NameNode reports about itself.

    Args:
        address: HTTP address of the NameNode (setting `storage.webhdfs`).
        seconds: Timeout of each of two requests, in seconds.
        ca: PEM file with the CA certificates for an https:// address; None for those of the system.
        authorize: Function that returns the Authorization header for a host name (`authorizer`);
            None without Kerberos. If it fails, the state is unknown.

    Returns:
        The report. If the server does not respond in time, its `failure` is the reason.
    """
    try:
        state = _read_bean(address, "NameNodeStatus", seconds, ca, authorize)
        info = _read_bean(address, "NameNodeInfo", seconds, ca, authorize)
    except OSError as error:
        return NameNodeReport(address=address, failure=str(getattr(error, "reason", error)))
    return NameNodeReport(address=address, state=(state or {}).get("State"), info=info)


def read_namenodes(settings: StorageSettings, seconds: float) -> list[NameNodeReport]:
    """Return what each NameNode of the `storage` settings reports about itself.

    Args:
        settings: The `storage` settings, for HDFS. With Kerberos, requests are authenticated.
        seconds: Timeout of each of two requests to a NameNode, in seconds.

    Returns:
        The reports in the order of the setting.
    """
    authorize = authorizer(settings)
    return [
        read_namenode(address, seconds, settings.ca, authorize) for address in settings.namenodes
    ]


def find_serving(reports: Iterable[NameNodeReport]) -> NameNodeReport | None:
    """Return the first report of a NameNode that serves requests.

    Args:
        reports: Reports of the NameNodes of a name service, in the order of the setting.

    Returns:
        An active NameNode; otherwise a server that does not report its state. None if there is
        neither.
    """
    serving = [report for report in reports if report.serves]
    return min(serving, key=lambda report: report.state is None, default=None)


def _read_bean(
    address: str,
    name: str,
    seconds: float,
    ca: Path | None,
    authorize: Callable[[str], str] | None,
) -> dict[str, Any] | None:
    # No proxy, as in WebHDFS: addresses of the cluster are internal.
    context = client_context(ca) if address.startswith("https:") else None
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))
    request = Request(f"{address}{_JMX}{name}")  # noqa: S310  # of a setting, http or https
    try:
        if authorize is not None:
            request.add_header("Authorization", authorize(urlsplit(address).hostname or ""))
        with opener.open(request, timeout=seconds) as answer:
            (bean,) = json.load(answer)["beans"]
            return dict(bean)
    except (HTTPError, ValueError, KeyError, TypeError, NegotiationFailed, ConfigError):
        return None
