"""How the ETL's driver stands: asked at its metrics; where nothing answers, by its last sign of
life in the ledger.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Final

from hourmark.commands.component_status import LOOPBACK, ComponentState, ComponentStatus, format_age
from hourmark.config.loading import Config
from hourmark.errors import HourmarkError
from hourmark_etl.ledger.database import CLOSER
from hourmark_etl.ledger.existing import existing_ledger
from hourmark_etl.ledger.heartbeat import driver_seen_ms, no_driver

HANGS_MS: Final = 120_000  # docs/metrics.md has the same for an alarm
_ANSWER_S: Final = 3.0
_LAST_POLL: Final = re.compile(r"^hourmark_etl_last_poll_timestamp_seconds (\S+)$", re.MULTILINE)


def driver(config: Config, now_ms: int) -> ComponentStatus:
    """The driver of this configuration."""
    address = f"{config.etl.metrics_host}:{config.etl.metrics_port}"
    try:
        known = _known(config, now_ms)
    except HourmarkError as error:
        known = ComponentStatus(ComponentState.NOT_RUNNING, str(error))
    try:
        with LOOPBACK.open(f"http://{address}/metrics", timeout=_ANSWER_S) as answer:
            looked = _LAST_POLL.search(answer.read().decode())
    except (OSError, ValueError):
        return dataclasses.replace(known, detail=f"no metrics at {address}; {known.detail}")
    looked_ms = round(float(looked[1]) * 1000) if looked is not None else 0
    if not looked_ms:
        return ComponentStatus(
            ComponentState.RUNNING,
            f"answers at {address}, and has not looked yet; {known.detail}",
            heard_at_ms=now_ms,
        )
    state = ComponentState.SILENT if now_ms - looked_ms > HANGS_MS else ComponentState.RUNNING
    return ComponentStatus(
        state,
        f"looked {format_age(looked_ms, now_ms)} ago ({address}); {known.detail}",
        heard_at_ms=looked_ms,
    )


def _known(config: Config, now_ms: int) -> ComponentStatus:
    """What the ledger says: who held the lease of closing last, and when a driver gave its last
    sign of life.
    """
    with existing_ledger(config) as database:
        epoch, seen_ms = database.epoch(CLOSER), driver_seen_ms(database)
    if not epoch:
        return ComponentStatus(
            ComponentState.NOT_RUNNING,
            "none has ever run on this ledger; `hourmark etl run` starts one",
        )
    if seen_ms is None:
        return ComponentStatus(
            ComponentState.UNKNOWN,
            f"the last one took its lease at commit {epoch}, and has given no sign of life yet",
        )
    said = f"its last sign of life is {format_age(seen_ms, now_ms)} old (lease of commit {epoch})"
    return ComponentStatus(
        ComponentState.NOT_RUNNING if no_driver(seen_ms, now_ms) else ComponentState.RUNNING,
        said,
        heard_at_ms=seen_ms,
    )
