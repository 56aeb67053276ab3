"""The check of the doctor that compares the clocks of hosts, brokers and this machine.

Evaluates whether a server's clock agrees with this machine's. No I/O.

Compares this machine's clock with those of PostgreSQL and of all servers that answer over HTTP.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from typing import Final

from hourmark.config.loading import Config
from hourmark.config.redaction import redact_setting
from hourmark.errors import HourmarkError
from hourmark.records.host_reports import CLOCKS_APART_MS_MAX
from hourmark_declare.doctor import http_request
from hourmark_declare.doctor.check_result import (
    CheckResult,
    finding_result,
    passed_result,
    skipped_result,
)
from hourmark_etl.ledger.database_status import read_database_status
from hourmark_etl.ledger.engines import sqlite_file

CHECK: Final = "clocks"
APART_MS_MAX: Final = CLOCKS_APART_MS_MAX // 5  # reported long before it stops closing


def evaluate_clock(
    subject: str, clock_ms: int, begun_ms: int, ended_ms: int, *, tick_ms: int
) -> CheckResult:
    """Evaluate a server's clock reading against this machine's clock.

    Args:
        subject: Name of the server in the result.
        clock_ms: Server time, Unix milliseconds, rounded down to `tick_ms`.
        begun_ms: This machine's time before the request, Unix milliseconds.
        ended_ms: This machine's time after the response, Unix milliseconds.
        tick_ms: Resolution of the server time in milliseconds.

    Returns:
        A finding if the clocks differ by more than a fifth of the tolerance for closing buckets,
        otherwise a passed result.
    """
    ahead_ms, behind_ms = clock_ms - ended_ms, begun_ms - (clock_ms + tick_ms)
    apart_ms, where = max((ahead_ms, "ahead of"), (behind_ms, "behind"))
    if apart_ms > APART_MS_MAX:
        return finding_result(
            CHECK,
            subject,
            f"its clock is {apart_ms / 1000:.0f} s {where} this machine's: from "
            f"{CLOCKS_APART_MS_MAX // 1000} s "
            "on no bucket closes, and it decides which lines are late or in the future",
            "set both by NTP (chronyc tracking, timedatectl)",
        )
    return passed_result(
        CHECK,
        subject,
        "its clock agrees with this "
        f"machine's{'' if apart_ms <= 0 else f' within {apart_ms / 1000:.1f} s'}",
    )


def check_clocks(config: Config) -> Iterator[CheckResult]:
    """Compare this machine's clock with the clock of each configured server.

    Covers the schema registry, WebHDFS, delivery services and PostgreSQL. Kafka does not report its
    clock.

    Args:
        config: Configuration that names the servers.

    Yields:
        One result for each server; skipped if the server is down, which other checks report.
    """
    for subject, url, context in _http_servers(config):
        try:
            told = http_request.send_request(url, context)
        except OSError:
            yield skipped_result(CHECK, subject, "it does not answer")
            continue
        if told.date_ms is None:
            yield skipped_result(CHECK, subject, "it does not report its clock")
        else:
            yield evaluate_clock(
                subject, told.date_ms, told.begun_ms, told.ended_ms, tick_ms=http_request.TICK_MS
            )
    if sqlite_file(config.etl.ledger) is None:
        yield _of_postgresql(config.etl.ledger)


def _http_servers(config: Config) -> Iterator[tuple[str, str, ssl.SSLContext | None]]:
    registry, tailer = config.registry, config.tailer
    yield (
        "registry.url",
        registry.url,
        http_request.create_tls_context(
            "registry", registry.ca, registry.certificate, registry.key
        ),
    )
    if config.storage.root.startswith("hdfs://"):
        yield (
            "storage.webhdfs",
            f"{config.storage.webhdfs.rstrip('/')}/webhdfs/v1/?op=GETFILESTATUS",
            None,
        )
    if tailer.sources:
        for url in tailer.service_urls:
            yield (
                redact_setting(url),
                url,
                http_request.create_tls_context(
                    "tailer.tls", tailer.tls.ca, tailer.tls.certificate, tailer.tls.key
                ),
            )


def _of_postgresql(url: str) -> CheckResult:
    begun_ms = time.time_ns() // 1_000_000
    try:
        found = read_database_status(url)
    except HourmarkError:
        found = None
    if found is None or found.clock_ms is None:
        return skipped_result(CHECK, "PostgreSQL", "it does not answer")
    return evaluate_clock(
        "PostgreSQL", found.clock_ms, begun_ms, time.time_ns() // 1_000_000, tick_ms=0
    )
