"""Compares this machine's clock with those of the servers that tell theirs: PostgreSQL, and all
that answer over HTTP.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator

from hourmark.config.loading import Config
from hourmark.config.redaction import shown
from hourmark.errors import HourmarkError
from hourmark_declare.doctor import http_asked
from hourmark_declare.doctor.clocks_judged import CHECK, clock_judged
from hourmark_declare.doctor.finding import Answer, not_asked
from hourmark_etl.ledger.database_status import read_database_status
from hourmark_etl.ledger.engines import sqlite_file


def ask(config: Config) -> Iterator[Answer]:
    """A server that is away is a finding of its own kind.

    Kafka tells no clock: of its brokers services and the ETL see it.
    """
    for subject, url, context in _http_servers(config):
        try:
            told = http_asked.ask(url, context)
        except OSError:
            yield not_asked(CHECK, subject, "it does not answer")
            continue
        if told.date_ms is None:
            yield not_asked(CHECK, subject, "it does not tell its clock")
        else:
            yield clock_judged(
                subject, told.date_ms, told.begun_ms, told.ended_ms, tick_ms=http_asked.TICK_MS
            )
    if sqlite_file(config.etl.ledger) is None:
        yield _of_postgresql(config.etl.ledger)


def _http_servers(config: Config) -> Iterator[tuple[str, str, ssl.SSLContext | None]]:
    registry, tailer = config.registry, config.tailer
    yield (
        "registry.url",
        registry.url,
        http_asked.tls("registry", registry.ca, registry.certificate, registry.key),
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
                shown(url),
                url,
                http_asked.tls("tailer.tls", tailer.tls.ca, tailer.tls.certificate, tailer.tls.key),
            )


def _of_postgresql(url: str) -> Answer:
    begun_ms = time.time_ns() // 1_000_000
    try:
        found = read_database_status(url)
    except HourmarkError:
        found = None
    if found is None or found.clock_ms is None:
        return not_asked(CHECK, "PostgreSQL", "it does not answer")
    return clock_judged(
        "PostgreSQL", found.clock_ms, begun_ms, time.time_ns() // 1_000_000, tick_ms=0
    )
