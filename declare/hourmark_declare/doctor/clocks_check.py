"""Compares this machine's clock with those of PostgreSQL and of all servers that answer over HTTP."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator

from hourmark.config.loading import Config
from hourmark.config.redaction import redact_setting
from hourmark.errors import HourmarkError
from hourmark_declare.doctor import http_request
from hourmark_declare.doctor.check_result import CheckResult, skipped_result
from hourmark_declare.doctor.clocks_evaluation import CHECK, evaluate_clock
from hourmark_etl.ledger.engines import sqlite_file
from hourmark_etl.ledger.standing import standing


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
        found = standing(url)
    except HourmarkError:
        found = None
    if found is None or found.clock_ms is None:
        return skipped_result(CHECK, "PostgreSQL", "it does not answer")
    return evaluate_clock(
        "PostgreSQL", found.clock_ms, begun_ms, time.time_ns() // 1_000_000, tick_ms=0
    )
