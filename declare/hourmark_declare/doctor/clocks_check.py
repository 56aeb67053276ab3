"""Compares this machine's clock with the clocks of PostgreSQL and of servers that answer over HTTP.

`evaluate_clock` performs no I/O; `check_clocks` sends the requests.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from typing import Final

from hourmark.config.loading import Config
from hourmark.config.redaction import redact_setting
from hourmark.errors import HourmarkError
from hourmark.records.host_reports import CLOCKS_APART_MS_MAX, CLOCKS_APART_MS_REPORTED
from hourmark_declare.doctor import http_request
from hourmark_declare.doctor.check_result import (
    CheckStatus,
    DoctorCheckResult,
    finding_result,
    passed_result,
    skipped_result,
)
from hourmark_etl.ledger.engines import sqlite_file
from hourmark_etl.ledger.maintenance.database_status import read_database_status

CHECK: Final = "clocks"
_DIRECTIONS: Final = ("ahead of", "behind")


def evaluate_clock(
    subject: str, clock_ms: int, begun_ms: int, ended_ms: int, *, tick_ms: int
) -> DoctorCheckResult:
    """Check whether a server's clock agrees with the clock of this machine.

    Args:
        subject: Name of the server, shown in the result.
        clock_ms: Time of the server in Unix milliseconds, rounded down to a multiple of `tick_ms`.
        begun_ms: Time of this machine before the request, in Unix milliseconds.
        ended_ms: Time of this machine after the response, in Unix milliseconds.
        tick_ms: Resolution of `clock_ms` in milliseconds.

    Returns:
        A finding if the clocks differ by more than one minute (`CLOCKS_APART_MS_REPORTED`), even
        after allowing for the request duration and the resolution. Otherwise, a passed result.
    """
    ahead_ms, behind_ms = clock_ms - ended_ms, begun_ms - (clock_ms + tick_ms)
    apart_ms, where = max((ahead_ms, _DIRECTIONS[0]), (behind_ms, _DIRECTIONS[1]))
    if apart_ms > CLOCKS_APART_MS_REPORTED:
        return finding_result(
            CHECK,
            subject,
            f"its clock is {apart_ms / 1000:.0f} s {where} this machine's: from "
            f"{CLOCKS_APART_MS_MAX // 1000} s "
            "on no bucket closes, and it decides which lines are late or in the future",
            "set both by NTP (chronyc tracking, timedatectl)",
            key="clock",
        )
    return passed_result(
        CHECK,
        subject,
        "its clock agrees with this "
        f"machine's{'' if apart_ms <= 0 else f' within {apart_ms / 1000:.1f} s'}",
    )


def check_clocks(config: Config) -> Iterator[DoctorCheckResult]:
    """Compare the clock of each configured server with the clock of this machine.

    Covers the schema registry, WebHDFS, the delivery services and PostgreSQL. Kafka brokers do not
    report their time.

    Args:
        config: Configuration with the addresses of the servers.

    Yields:
        One result for each server, which is `SKIPPED` if the server does not respond or does not
        report its time. If several servers report their time, and all of them differ from this
        machine in the same direction, a single finding about this machine replaces theirs.

    Raises:
        ConfigError: A configured certificate or key cannot be loaded.
    """
    yield from _merge_own_clock([*_compare_each(config)])


def _merge_own_clock(results: list[DoctorCheckResult]) -> list[DoctorCheckResult]:
    found = [result for result in results if result.verdict is CheckStatus.FINDING]
    agreeing = [result for result in results if result.verdict is CheckStatus.PASSED]
    words = {word for result in found for word in _DIRECTIONS if f" {word} " in result.seen}
    if len(found) < 2 or agreeing or len(words) != 1:
        return results
    subjects = ", ".join(result.subject for result in found)
    own = finding_result(
        CHECK,
        "this machine",
        f"its clock differs from that of all servers that answer ({subjects}): of "
        f"{found[0].subject}, {found[0].seen}",
        "set this machine's clock by NTP (chronyc tracking, timedatectl)",
        key="clock",
    )
    return [own, *(result for result in results if result.verdict is CheckStatus.SKIPPED)]


def _compare_each(config: Config) -> Iterator[DoctorCheckResult]:
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
        namenodes = config.storage.namenodes
        context = http_request.create_tls_context("storage", config.storage.ca, None, None)
        for address in namenodes:
            yield (
                "storage.webhdfs" if len(namenodes) == 1 else redact_setting(address),
                f"{address}/webhdfs/v1/?op=GETFILESTATUS",
                context,
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


def _of_postgresql(url: str) -> DoctorCheckResult:
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
