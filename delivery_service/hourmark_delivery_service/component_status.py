"""How delivery services and tailers stand: the service is asked itself, both are known by their reports in `hourmark.hosts`."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Final
from urllib.error import HTTPError

from hourmark.component_status import FRESH_MS, LOOPBACK, ComponentStatus, State, age, must_listen
from hourmark.config import Config
from hourmark.errors import Unavailable
from hourmark.host_reports import HostReport
from hourmark.recent_reports import recent_reports
from hourmark.state_folder import StateFolder

_ANSWER_S: Final = 5.0
_NAMED_MAX: Final = 5


def service(config: Config, now_ms: int) -> ComponentStatus:
    """The service of this configuration, asked at /readyz; where it does not answer, whoever reported last."""
    host = f"[{config.service.host}]" if ":" in config.service.host else config.service.host
    address = f"http://{host}:{config.service.port}"
    pid = StateFolder(config.service.state_dir, "service").holder()
    try:
        with LOOPBACK.open(f"{address}/readyz", timeout=_ANSWER_S):
            return ComponentStatus(State.RUNNING, f"ready at {address}", pid, now_ms)
    except HTTPError as error:
        with error:
            return ComponentStatus(State.RUNNING, f"answers at {address}, not ready: {_reasons(error)}", pid, now_ms)
    except OSError:
        nobody = f"does not answer at {address}"
    try:
        reports = _reports(config)
    except Unavailable as error:
        return ComponentStatus(State.RUNNING if pid else State.NOT_RUNNING, f"{nobody}; {error}", pid)
    known = of_reports([r for r in reports if r.kind == "service"], now_ms)
    return ComponentStatus(State.RUNNING if pid else known.state, f"{nobody}; {known.detail}", pid, known.heard_at_ms)


def tailers(config: Config, now_ms: int) -> ComponentStatus:
    """Of all hosts, by their reports; the one of this configuration also by its state folder."""
    pid = StateFolder(config.tailer.state_dir, "tailer").holder()
    try:
        reports = _reports(config)
    except Unavailable as error:
        return ComponentStatus(State.RUNNING if pid else State.UNKNOWN, str(error), pid)
    known = of_reports([r for r in reports if r.kind == "tailer"], now_ms)
    return ComponentStatus(State.RUNNING if pid else known.state, known.detail, pid, known.heard_at_ms)


def of_reports(reports: Collection[HostReport], now_ms: int) -> ComponentStatus:
    """The last report of each: running where one is fresh, silent where one stopped without a goodbye. Pure."""
    live = [r for r in reports if not r.goodbye and now_ms - r.received_at_ms <= FRESH_MS]
    silent = [r for r in reports if not r.goodbye and now_ms - r.received_at_ms > FRESH_MS]
    gone = [r for r in reports if r.goodbye]
    state = State.RUNNING if live else State.SILENT if silent else State.NOT_RUNNING
    parts = (_named("reported", live, now_ms), _named("silent", silent, now_ms), _named("said goodbye", gone, now_ms))
    heard_at_ms = max((r.received_at_ms for r in reports), default=None)
    return ComponentStatus(
        state, "; ".join(part for part in parts if part) or "nobody has reported lately", heard_at_ms=heard_at_ms
    )


def _reports(config: Config) -> Collection[HostReport]:
    must_listen(config.kafka.edge, "edge")
    return recent_reports(config.kafka.edge).values()


def _named(what: str, reports: Collection[HostReport], now_ms: int) -> str:
    if not reports:
        return ""
    newest = sorted(reports, key=lambda report: -report.received_at_ms)
    names = [f"{report.host_name} ({age(report.received_at_ms, now_ms)} ago)" for report in newest[:_NAMED_MAX]]
    more = f" and {len(newest) - _NAMED_MAX} more" if len(newest) > _NAMED_MAX else ""
    return f"{what}: {', '.join(names)}{more}"


def _reasons(answer: HTTPError) -> str:
    try:
        return "; ".join(json.load(answer)["reasons"])
    except (ValueError, KeyError, TypeError):
        return f"status {answer.code}"
