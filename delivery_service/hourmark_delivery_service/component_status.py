"""Status of delivery services and tailers for `hourmark status`.

The service of the configuration is queried over HTTP. Other instances are known by their host
reports in the topic `hourmark.hosts`.
"""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import Collection
from typing import IO, Final
from urllib.error import HTTPError
from urllib.request import HTTPSHandler, OpenerDirector, ProxyHandler, build_opener

from hourmark.commands.component_status import (
    FRESH_MS,
    LOOPBACK,
    ComponentState,
    ComponentStatus,
    check_listening,
    format_age,
)
from hourmark.config.groups import ServiceSettings, ServiceTls
from hourmark.config.loading import Config
from hourmark.errors import ConfigError, Unavailable
from hourmark.kafka.recent_reports import recent_reports
from hourmark.process.certificates import load_ca_certificates, load_certificate
from hourmark.records.host_reports import HostReport
from hourmark.state_folder import StateFolder

_ANSWER_S: Final = 5.0
_NAMED_MAX: Final = 5


def service(config: Config, now_ms: int) -> ComponentStatus:
    """Return the status of the configured delivery service from its `/readyz` endpoint.

    If the endpoint does not respond, the status is derived from the latest host reports, which
    services send to Kafka.

    Args:
        config: Configuration with the address and certificate of the service.
        now_ms: Current time in Unix milliseconds.

    Returns:
        `RUNNING` if the endpoint responds, even if the service is not ready. The detail then lists
        its warnings, or the reasons why it is not ready. If neither the endpoint nor Kafka
        responds, `NOT_RUNNING`, unless the service's process is found on this machine.
    """
    address, opener = _address(config.service), _opener(config.service.tls)
    pid = StateFolder(config.service.state_dir, "service").holder()
    try:
        with opener.open(f"{address}/readyz", timeout=_ANSWER_S) as answer:
            return ComponentStatus(
                ComponentState.RUNNING,
                "; ".join([f"ready at {address}", *_told(answer, "warnings")]),
                pid,
                now_ms,
            )
    except HTTPError as error:
        with error:
            return ComponentStatus(
                ComponentState.RUNNING,
                f"answers at {address}, not ready: {_reasons(error)}",
                pid,
                now_ms,
            )
    except OSError:
        return _heard_of(
            config,
            "service",
            pid,
            now_ms,
            ComponentState.NOT_RUNNING,
            f"does not answer at {address}; ",
        )


def tailers(config: Config, now_ms: int) -> ComponentStatus:
    """Return the combined status of the tailers on all hosts, from their latest host reports.

    Tailers send host reports to Kafka, which state up to which time a host has sent all its data.

    Args:
        config: Configuration with the Kafka cluster and the tailer's state folder.
        now_ms: Current time in Unix milliseconds.

    Returns:
        `RUNNING` if a tailer reported recently, or if one runs on this machine with the configured
        state folder. `UNKNOWN` if Kafka cannot be reached and no tailer runs on this machine.
        Otherwise as described at `status_from_reports`.
    """
    pid = StateFolder(config.tailer.state_dir, "tailer").holder()
    return _heard_of(config, "tailer", pid, now_ms, ComponentState.UNKNOWN)


def _heard_of(
    config: Config,
    kind: str,
    pid: int | None,
    now_ms: int,
    otherwise: ComponentState,
    told: str = "",
) -> ComponentStatus:
    try:
        check_listening(config.kafka.edge, "edge")
        known = status_from_reports(
            [r for r in recent_reports(config.kafka.edge).values() if r.kind == kind], now_ms
        )
    except Unavailable as error:
        known = ComponentStatus(otherwise, str(error))
    return ComponentStatus(
        ComponentState.RUNNING if pid else known.state, told + known.detail, pid, known.heard_at_ms
    )


def status_from_reports(reports: Collection[HostReport], now_ms: int) -> ComponentStatus:
    """Return the combined status of components of one kind from their latest host reports.

    Args:
        reports: The latest report of each component.
        now_ms: Current time in Unix milliseconds.

    Returns:
        - `RUNNING` if at least one component reported recently
        - `SILENT` if none did, and a component stopped without a final report
        - `NOT_RUNNING` if all sent a final report, or there are no reports

        The detail names up to five components of each of these groups.
    """
    live = [r for r in reports if not r.goodbye and now_ms - r.received_at_ms <= FRESH_MS]
    gone = [r for r in reports if r.goodbye]
    silent = [r for r in reports if not r.goodbye and now_ms - r.received_at_ms > FRESH_MS]
    state = (
        ComponentState.RUNNING
        if live
        else ComponentState.SILENT
        if silent
        else ComponentState.NOT_RUNNING
    )
    kinds = (("reported", live), ("silent", silent), ("said goodbye", gone))
    detail = (
        "; ".join(_named(what, kind, now_ms) for what, kind in kinds if kind) or "no recent reports"
    )
    heard_at_ms = max((r.received_at_ms for r in reports), default=None)
    return ComponentStatus(state, detail, heard_at_ms=heard_at_ms)


def _named(what: str, reports: Collection[HostReport], now_ms: int) -> str:
    newest = sorted(reports, key=lambda report: -report.received_at_ms)
    names = [
        f"{report.host_name} ({format_age(report.received_at_ms, now_ms)} ago)"
        for report in newest[:_NAMED_MAX]
    ]
    more = f" and {len(newest) - _NAMED_MAX} more" if len(newest) > _NAMED_MAX else ""
    return f"{what}: {', '.join(names)}{more}"


def _reasons(answer: HTTPError) -> str:
    return "; ".join(_told(answer, "reasons")) or f"status {answer.code}"


def _told(answer: IO[bytes], member: str) -> list[str]:
    try:
        return [str(text) for text in json.load(answer)[member]]
    except (ValueError, KeyError, TypeError):
        return []


def _address(settings: ServiceSettings) -> str:
    host = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104
    return f"{'http' if settings.tls.certificate is None else 'https'}://{f'[{host}]' if ':' in host else host}:{settings.port}"


def _opener(settings: ServiceTls) -> OpenerDirector:
    # Trusts only the service's own certificate, whatever host names it contains.
    if settings.certificate is None:
        return LOOPBACK
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= (
        ssl.VERIFY_X509_PARTIAL_CHAIN
    )  # the certificate itself is the anchor, not its CA
    with contextlib.suppress(
        ConfigError
    ):  # then no certificate is trusted, and the error of the request states why
        load_ca_certificates(context, "service.tls.certificate", settings.certificate)
        if settings.client_ca is not None:
            load_certificate(context, "service.tls", settings.certificate, settings.key)
    return build_opener(ProxyHandler({}), HTTPSHandler(context=context))
