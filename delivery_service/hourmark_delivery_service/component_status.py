"""Status of delivery services and tailers for `hourmark status`.

The service of the configuration is queried over HTTP. Other instances are known by their host
reports in the topic `hourmark.hosts`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import ssl
import time
from collections.abc import Collection
from typing import IO, Final
from urllib.error import HTTPError, URLError
from urllib.request import HTTPSHandler, OpenerDirector, ProxyHandler, build_opener

from hourmark.commands.component_status import (
    FRESH_MS,
    LOOPBACK,
    ComponentState,
    ComponentStatus,
    check_listening,
    format_age,
)
from hourmark.commands.problems import SERVICE_REPLACED_MS, CauseClass, Problem, silent_host_problem
from hourmark.config.groups import ServiceSettings, ServiceTls
from hourmark.config.loading import Config
from hourmark.errors import ConfigError, Unavailable
from hourmark.kafka.recent_reports import recent_reports
from hourmark.printing import name_some
from hourmark.process.certificates import load_ca_certificates, load_certificate
from hourmark.process.parallel_calls import call_all
from hourmark.records.host_reports import CLOCKS_APART_MS_MAX, CLOCKS_APART_MS_REPORTED, HostReport
from hourmark.state_folder import StateFolder

_ANSWER_S: Final = 5.0
_REPORTS_S: Final = 6.0
_REPORTS_AGAIN_S: Final = 2.0
_INTERVAL_S: Final = 2.5  # reports are sent every two seconds
_NEVER_MS: Final = 1 << 62
_NAMED_MAX: Final = 5
_COMPARE_CLOCKS: Final = (
    "`timedatectl` and `chronyc tracking` on the machine of each service, and on this one"
)
_STARTS_S: Final = 20.0  # a service checks its parsers before it listens


def service_status(config: Config, now_ms: int) -> ComponentStatus:
    """Return the status of the configured delivery service from its `/readyz` endpoint.

    If the endpoint does not respond, the status is derived from the service's process on this
    machine and from the latest host reports, which services send to Kafka.

    Args:
        config: Configuration with the address and certificate of the service.
        now_ms: Current time in Unix milliseconds.

    Returns:
        The status. Its state is:

        - `RUNNING` if the endpoint responds, even if the service is not ready or its certificate
          is not accepted, or if the process started on this machine in the last 20 seconds
        - `UNKNOWN` if a process responds, and the TLS handshake fails for another reason
        - `SILENT` if an older process does not respond, or has ended without a final report
        - otherwise the state according to the host reports, or `NOT_RUNNING` if Kafka does not
          respond either

        Warnings of the endpoint, the reasons why the service is not ready, and a certificate that
        is not accepted are included as problems.
    """
    address, opener = _address(config.service), _opener(config.service.tls)
    folder = StateFolder(config.service.state_dir, "service")
    pid = folder.holder()
    host_id, reports, clock = _host_id(folder), list[HostReport](), tuple[Problem, ...]()
    try:
        reports, at_ms, clock = _latest_reports(config, now_ms)
        others = status_from_reports([r for r in reports if r.kind == "service"], at_ms)
    except Unavailable as error:
        others = ComponentStatus(ComponentState.NOT_RUNNING, str(error))
    # Other instances than this one, which answers for itself.
    problems = (*clock, *(p for p in others.problems if p.key != f"host:{host_id}"))
    try:
        with opener.open(f"{address}/readyz", timeout=_ANSWER_S) as answer:
            warnings = _read_texts(answer, "warnings")
        return ComponentStatus(
            ComponentState.RUNNING,
            "; ".join([f"ready at {address}", *warnings]),
            pid,
            now_ms,
            (*(_warning(address, n, text) for n, text in enumerate(warnings)), *problems),
        )
    except HTTPError as error:
        with error:
            reasons = _reasons(error)
        return ComponentStatus(
            ComponentState.RUNNING,
            f"responds at {address}, not ready: {reasons}",
            pid,
            now_ms,
            (_not_ready(address, reasons), *problems),
        )
    except URLError as error:
        if isinstance(error.reason, ssl.SSLError):
            return _untrusted(address, pid, now_ms, error.reason, problems)
    except OSError:
        pass
    detail = f"does not respond at {address}; {others.detail}"
    if pid is None:
        if not any(r.host_id == host_id and not r.goodbye for r in reports):
            return dataclasses.replace(others, detail=detail, problems=problems)
        ended = (_ended(address), *problems)
        return dataclasses.replace(
            others, state=ComponentState.SILENT, detail=detail, problems=ended
        )
    since_ms = folder.locked_at_ms()
    if since_ms is not None and now_ms - since_ms < _STARTS_S * 1000:
        detail = f"starting, or hanging since its start; {detail}"
        return ComponentStatus(ComponentState.RUNNING, detail, pid, others.heard_at_ms, problems)
    hangs = _hangs(address, pid)
    return ComponentStatus(
        ComponentState.SILENT, detail, pid, others.heard_at_ms, (hangs, *problems)
    )


def _untrusted(
    address: str, pid: int | None, now_ms: int, error: ssl.SSLError, problems: tuple[Problem, ...]
) -> ComponentStatus:
    # A process answers, so neither its log nor a restart is the next step.
    if not isinstance(error, ssl.SSLCertVerificationError):
        detail = f"responds at {address}, but the TLS handshake fails: {error.reason or error}"
        return ComponentStatus(ComponentState.UNKNOWN, detail, pid, None, problems)
    what = f"its certificate is not accepted: {error.verify_message}"
    refused = _unavailable(
        address,
        f"{what}; tailers and clients reject it for the same reason",
        "renew the file service.tls.certificate and send the service SIGHUP, or set this "
        "configuration to the file that the service uses",
    )
    detail = f"responds at {address}; {what}"
    return ComponentStatus(ComponentState.RUNNING, detail, pid, now_ms, (refused, *problems))


def _host_id(folder: StateFolder) -> str | None:
    try:
        return folder.host_id()
    except ConfigError:  # this user may not read the folder
        return None


def _warning(address: str, number: int, text: str) -> Problem:
    # The service accepts requests, except for what the warning names.
    return Problem(
        cause=CauseClass.COMPONENT,
        key=f"service-warning:{address}:{number}",
        subject=f"delivery service {address}",
        what=text,
        do="follow the message; meanwhile, the service accepts everything else",
        group="warnings of a delivery service",
    )


def _not_ready(address: str, reasons: str) -> Problem:
    return _unavailable(
        address,
        f"it responds, but is not ready: {reasons}",
        "resolve the stated reason, problems of servers first; the service then becomes ready "
        "automatically. `hourmark doctor --only kafka` checks brokers and topics",
    )


def _ended(address: str) -> Problem:
    return _unavailable(
        address,
        "it does not respond, its process has ended, and it sent no final report: it was killed "
        "or it failed",
        "start it again: `hourmark serve`; unless it was killed, the end of its log states the "
        "reason",
    )


def _hangs(address: str, pid: int) -> Problem:
    return _unavailable(
        address,
        f"process {pid} exists but does not respond",
        "check the end of its log; if it was suspended, continue it (SIGCONT); otherwise end it "
        "(SIGKILL loses no acknowledged data) and start it again: `hourmark serve`",
    )


def _unavailable(address: str, what: str, do: str) -> Problem:
    return Problem(
        cause=CauseClass.COMPONENT,
        key=f"service:{address}",
        subject=f"delivery service {address}",
        what=what,
        do=do,
    )


def tailers_status(config: Config, now_ms: int) -> ComponentStatus:
    """Return the combined status of the tailers on all hosts, from their latest host reports.

    Tailers read log files and regularly send host reports to Kafka to report their progress.

    Args:
        config: Configuration with the Kafka cluster and the tailer's state folder.
        now_ms: Current time in Unix milliseconds.

    Returns:
        `RUNNING` if a tailer reported recently, or if one runs on this machine with the configured
        state folder. `UNKNOWN` if Kafka cannot be reached and no tailer runs on this machine.
        Otherwise the result of `status_from_reports`.
    """
    pid = StateFolder(config.tailer.state_dir, "tailer").holder()
    clock = tuple[Problem, ...]()
    try:
        reports, now_ms, clock = _latest_reports(config, now_ms)
        known = tailers_from_reports(reports, now_ms)
    except Unavailable as error:
        known = ComponentStatus(ComponentState.UNKNOWN, str(error))
    # Hours are closed without a tailer that is silent past the deadline.
    awaited_s = config.etl.deadline_seconds + config.parsing.bucket_seconds
    problems = (
        *clock,
        *(p for p in known.problems if now_ms - (p.since_ms or now_ms) <= awaited_s * 1000),
    )
    return dataclasses.replace(
        known, state=ComponentState.RUNNING if pid else known.state, pid=pid, problems=problems
    )


def _latest_reports(
    config: Config, now_ms: int
) -> tuple[list[HostReport], int, tuple[Problem, ...]]:
    # Return the reports, the time to compare them with, and the problem of a clock. Where all
    # reports are old and new ones arrive, the reporters are alive, and this machine's clock or that
    # of the services is wrong. A cluster that answers slowly leaves no time to see that. Raises
    # Unavailable.
    began_s = time.monotonic()
    reports = _read_reports_within(config, _REPORTS_S)
    before = {r.host_id: r.received_at_ms for r in reports if not r.goodbye}
    is_slow = time.monotonic() - began_s > _REPORTS_AGAIN_S
    if not before or is_slow or now_ms - max(before.values()) <= FRESH_MS:
        return reports, now_ms, ()
    time.sleep(_INTERVAL_S)
    reports = _read_reports_within(config, _REPORTS_AGAIN_S)
    newer = [
        r.received_at_ms for r in reports if r.received_at_ms > before.get(r.host_id, _NEVER_MS)
    ]
    if not newer:
        return reports, now_ms, ()
    return reports, max(newer), (_behind(now_ms - max(newer)),)


def _read_reports_within(config: Config, seconds: float) -> list[HostReport]:
    # A broker that hangs would delay the answer by 15 s, after that of the service is known.
    found = call_all({"reports": lambda: _read_reports(config)}, seconds)
    late = Unavailable(f"the edge cluster did not respond within {seconds:g} s")
    answer = found.get("reports", late)
    if isinstance(answer, Unavailable):
        raise answer
    return answer


def _read_reports(config: Config) -> list[HostReport] | Unavailable:
    try:
        check_listening(config.kafka.edge, "edge")
        return [*recent_reports(config.kafka.edge).values()]
    except Unavailable as error:  # the thread that reads them would print it
        return error


def tailers_from_reports(reports: Collection[HostReport], now_ms: int) -> ComponentStatus:
    """Return the combined status of the tailers from the latest host reports of all components.

    Tailers send their reports to delivery services, which store them in Kafka. If no service has
    reported recently, reports of tailers cannot arrive. The tailers are then evaluated at the time
    of the last report of a service.

    Args:
        reports: The latest report of each tailer and each delivery service.
        now_ms: Current time in Unix milliseconds.

    Returns:
        The result of `status_from_reports` for the tailers. If no service has reported recently,
        the state `UNKNOWN` replaces `RUNNING`.
    """
    own = [r for r in reports if r.kind == "tailer"]
    stored_ms = max(
        (r.received_at_ms for r in reports if r.kind == "service" and not r.goodbye), default=now_ms
    )
    if now_ms - stored_ms <= FRESH_MS:
        return status_from_reports(own, now_ms)
    then = status_from_reports(own, stored_ms)
    unknown = then.state is ComponentState.RUNNING
    return dataclasses.replace(
        then,
        state=ComponentState.UNKNOWN if unknown else then.state,
        detail=f"no delivery service has stored their reports for {format_age(stored_ms, now_ms)}; "
        f"the last known state: {then.detail}",
    )


def status_from_reports(reports: Collection[HostReport], now_ms: int) -> ComponentStatus:
    """Return the combined status of components of one kind from their latest host reports.

    Each tailer and each delivery service sends host reports at regular intervals, and a final one
    before a clean shutdown.

    Args:
        reports: The latest report of each component.
        now_ms: Current time in Unix milliseconds.

    Returns:
        The combined status. Its state is:

        - `RUNNING` if at least one component reported recently
        - `SILENT` if none did, and a component stopped without a final report
        - `NOT_RUNNING` if all sent a final report, or there are no reports

        The detail lists up to five components of each of these groups. Each silent component is a
        problem, except for a delivery service that has been silent for over ten minutes while
        another one reports. A report with a time in the future is also a problem, because it means
        that a clock is wrong.
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
    kinds = (("reported", live), ("silent", silent), ("reported a goodbye", gone))
    detail = (
        "; ".join(_named(what, kind, now_ms) for what, kind in kinds if kind) or "no recent reports"
    )
    heard_at_ms = max((r.received_at_ms for r in reports), default=None)
    problems = tuple(
        silent_host_problem(r.kind, r.host_name, r.host_id, r.received_at_ms)
        for r in silent
        if not (live and r.kind == "service" and now_ms - r.received_at_ms > SERVICE_REPLACED_MS)
    )
    ahead = [
        _ahead(r, now_ms) for r in live if r.received_at_ms - now_ms > CLOCKS_APART_MS_REPORTED
    ]
    return ComponentStatus(state, detail, heard_at_ms=heard_at_ms, problems=(*ahead[:1], *problems))


def _behind(apart_ms: int) -> Problem:
    return Problem(
        cause=CauseClass.CLOCK,
        key="clock:services",
        subject="clock of this machine, or of delivery services",
        what=f"reports arrive with times {apart_ms // 1000} s behind this machine's clock; no "
        f"bucket closes if the difference is {CLOCKS_APART_MS_MAX // 1000} s or more",
        do=_COMPARE_CLOCKS,
    )


def _ahead(report: HostReport, now_ms: int) -> Problem:
    # Reports have the clock of the service that received them, so one clock may mark many hosts.
    seconds = (report.received_at_ms - now_ms) // 1000
    return Problem(
        cause=CauseClass.CLOCK,
        key="clock:services",
        subject="clock of a delivery service",
        what=f"the report of {report.kind} {report.host_name} has a time {seconds} s ahead of "
        "this machine's clock; no bucket closes if the difference is "
        f"{CLOCKS_APART_MS_MAX // 1000} s or more",
        do=_COMPARE_CLOCKS,
    )


def _named(what: str, reports: Collection[HostReport], now_ms: int) -> str:
    newest = sorted(reports, key=lambda report: -report.received_at_ms)
    names = [f"{r.host_name} ({format_age(r.received_at_ms, now_ms)} ago)" for r in newest]
    return f"{what}: {name_some(names, _NAMED_MAX)}"


def _reasons(answer: HTTPError) -> str:
    return "; ".join(_read_texts(answer, "reasons")) or f"status {answer.code}"


def _read_texts(answer: IO[bytes], member: str) -> list[str]:
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
