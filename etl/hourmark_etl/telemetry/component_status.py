"""How the ETL's driver stands: asked at its metrics; where nothing answers, by what the ledger says it did last."""

from __future__ import annotations

import re
from typing import Final

from hourmark.component_status import FRESH_MS, LOOPBACK, ComponentStatus, State, age
from hourmark.config import Config
from hourmark.errors import HourmarkError
from hourmark_etl.ledger.batches import reporters
from hourmark_etl.ledger.database import CLOSER
from hourmark_etl.ledger.existing import existing_ledger

HANGS_MS: Final = 120_000  # docs/metrics.md has the same for an alarm
_ANSWER_S: Final = 3.0
_LAST_POLL: Final = re.compile(r"^hourmark_etl_last_poll_timestamp_seconds (\S+)$", re.MULTILINE)


def driver(config: Config, now_ms: int) -> ComponentStatus:
    """The driver of this configuration."""
    address = f"{config.etl.metrics_host}:{config.etl.metrics_port}"
    try:
        staged = _staged(config, now_ms)
    except HourmarkError as error:
        staged = ComponentStatus(State.NOT_RUNNING, str(error))
    try:
        with LOOPBACK.open(f"http://{address}/metrics", timeout=_ANSWER_S) as answer:
            looked = _LAST_POLL.search(answer.read().decode())
    except (OSError, ValueError):
        return ComponentStatus(staged.state, f"no metrics at {address}; {staged.detail}", heard_at_ms=staged.heard_at_ms)
    looked_ms = round(float(looked[1]) * 1000) if looked is not None else 0
    if not looked_ms:
        return ComponentStatus(
            State.RUNNING, f"answers at {address}, and has not looked yet; {staged.detail}", heard_at_ms=now_ms
        )
    state = State.SILENT if now_ms - looked_ms > HANGS_MS else State.RUNNING
    return ComponentStatus(state, f"looked {age(looked_ms, now_ms)} ago ({address}); {staged.detail}", heard_at_ms=looked_ms)


def _staged(config: Config, now_ms: int) -> ComponentStatus:
    """What the ledger says: who held the lease of closing last, and when a report of a host was staged last."""
    with existing_ledger(config) as database:
        epoch = database.epoch(CLOSER)
        heard_at_ms = max((reporter.heard_at_ms for reporter in reporters(database)), default=None)
    if not epoch:
        return ComponentStatus(State.NOT_RUNNING, "none has ever run on this ledger; `hourmark etl run` starts one")
    if heard_at_ms is None:
        return ComponentStatus(State.UNKNOWN, f"the last one took its lease at commit {epoch}, and has staged no report yet")
    said = f"it staged a report {age(heard_at_ms, now_ms)} ago (lease of commit {epoch})"
    return ComponentStatus(
        State.RUNNING if now_ms - heard_at_ms <= FRESH_MS else State.NOT_RUNNING, said, heard_at_ms=heard_at_ms
    )
