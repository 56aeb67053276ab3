"""Status of the ETL driver for `hourmark status`.

The driver's metrics endpoint is asked first. If it does not respond, the driver's last heartbeat
in the ledger determines the status.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Final

from hourmark.commands.component_status import LOOPBACK, ComponentState, ComponentStatus, format_age
from hourmark.config.loading import Config
from hourmark.errors import HourmarkError
from hourmark_etl.ledger.database import CLOSER
from hourmark_etl.ledger.heartbeat import describe_missing_driver, last_heartbeat_ms
from hourmark_etl.ledger.maintenance.existing import open_existing_ledger

HANGS_MS: Final = 120_000  # the alarm in docs/metrics.md uses the same limit
_ANSWER_S: Final = 3.0
_LAST_POLL: Final = re.compile(r"^hourmark_etl_last_poll_timestamp_seconds (\S+)$", re.MULTILINE)


def driver_status(config: Config, now_ms: int) -> ComponentStatus:
    """Return the status of the ETL driver, the process that stages events and closes buckets.

    If the driver or its state database (the ledger) is not available, the error is part of the
    status and is not raised.

    Args:
        config: Configuration that contains the address of the driver's metrics endpoint
            (`etl.metrics_host`, `etl.metrics_port`) and the ledger URL (`etl.ledger`).
        now_ms: Current time, Unix milliseconds.

    Returns:
        If the metrics endpoint responds: `SILENT` if the driver's main loop last polled more than
        two minutes ago, otherwise `RUNNING`. If it does not respond, the status that follows from
        the last heartbeat in the ledger: `RUNNING`, `NOT_RUNNING`, or `UNKNOWN` before the first
        heartbeat; `NOT_RUNNING` if the ledger cannot be read.
    """
    address = f"{config.etl.metrics_host}:{config.etl.metrics_port}"
    try:
        known = _known(config, now_ms)
    except HourmarkError as error:
        known = ComponentStatus(ComponentState.NOT_RUNNING, str(error))
    try:
        with LOOPBACK.open(f"http://{address}/metrics", timeout=_ANSWER_S) as answer:
            last_poll = _LAST_POLL.search(answer.read().decode())
    except (OSError, ValueError):
        return dataclasses.replace(known, detail=f"no metrics at {address}; {known.detail}")
    polled_ms = round(float(last_poll[1]) * 1000) if last_poll is not None else 0
    if not polled_ms:
        return ComponentStatus(
            ComponentState.RUNNING,
            f"responds at {address}, but has not polled yet; {known.detail}",
            heard_at_ms=now_ms,
        )
    state = ComponentState.SILENT if now_ms - polled_ms > HANGS_MS else ComponentState.RUNNING
    return ComponentStatus(
        state,
        f"polled {format_age(polled_ms, now_ms)} ago ({address}); {known.detail}",
        heard_at_ms=polled_ms,
    )


def _known(config: Config, now_ms: int) -> ComponentStatus:
    with open_existing_ledger(config) as database:
        epoch, seen_ms = database.epoch(CLOSER), last_heartbeat_ms(database)
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
    detail = f"its last sign of life is {format_age(seen_ms, now_ms)} old (lease of commit {epoch})"
    return ComponentStatus(
        ComponentState.NOT_RUNNING
        if describe_missing_driver(seen_ms, now_ms)
        else ComponentState.RUNNING,
        detail,
        heard_at_ms=seen_ms,
    )
