"""Checks the delivery services that a tailer with this configuration would use. Changes nothing."""

from __future__ import annotations

import contextlib
import ipaddress
import json
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from hourmark.config.loading import Config
from hourmark.config.redaction import redact_setting
from hourmark_declare.doctor import http_request
from hourmark_declare.doctor.check_result import (
    DoctorCheckResult,
    finding_result,
    passed_result,
    skipped_result,
)

CHECK: Final = "services"


def check_services(config: Config) -> Iterator[DoctorCheckResult]:
    """Check whether each delivery service in `tailer.service_urls` is ready.

    The tailer, which reads log files, sends their lines to these services.

    Args:
        config: Configuration with the settings group `tailer`.

    Yields:
        One result for each URL, or a single skipped result if `tailer.sources` is empty.

    Raises:
        ConfigError: A certificate or key in `tailer.tls` cannot be loaded.
    """
    if not config.tailer.sources:
        yield skipped_result(
            CHECK, "tailer.service_urls", "without tailer.sources nothing is sent to them"
        )
        return
    told = config.tailer.tls
    context = http_request.create_tls_context("tailer.tls", told.ca, told.certificate, told.key)
    for url in config.tailer.service_urls:
        try:
            answered = http_request.send_request(f"{url.rstrip('/')}/readyz", context)
        except OSError as error:
            yield _away(url, error)
        else:
            yield evaluate_service(redact_setting(url), answered.status, answered.body)


def evaluate_service(url: str, status: int, body: bytes) -> DoctorCheckResult:
    """Evaluate the response of a delivery service to `GET /readyz`.

    Args:
        url: URL of the service, shown in the result.
        status: HTTP status code; 200 means that the service is ready.
        body: Response body, which contains JSON with the list `reasons` if the service is not
            ready.

    Returns:
        A passed result if the status is 200; otherwise a finding that quotes the reasons.
    """
    if status == 200:
        return passed_result(CHECK, url, "ready")
    reasons = ""
    with contextlib.suppress(ValueError, AttributeError):
        reasons = "; ".join(map(str, json.loads(body).get("reasons", [])))
    return finding_result(
        CHECK,
        url,
        f"it answers with {status}, and takes nothing now{f': {reasons}' if reasons else ''}",
        "see its log; where it is no delivery service, tailer.service_urls names another server",
        key=_key(url),
    )


def _away(url: str, error: OSError) -> DoctorCheckResult:
    why = str(getattr(error, "reason", error))
    if _is_here(url) and "refused" in why:
        return skipped_result(
            CHECK,
            redact_setting(url),
            "no delivery service runs on this machine: `hourmark serve` starts one, and "
            "tailers wait for it",
        )
    return finding_result(
        CHECK,
        redact_setting(url),
        f"it does not answer: {why}",
        "see that it runs and is reached from here, and that tailer.tls fits its certificate",
        key=_key(url),
    )


def _key(url: str) -> str:
    return f"service:{redact_setting(url.rstrip('/'))}"


def _is_here(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
