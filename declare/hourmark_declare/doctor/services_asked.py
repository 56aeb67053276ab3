"""Asks the delivery services that a tailer of this configuration would send to. Changes nothing."""

from __future__ import annotations

import contextlib
import ipaddress
import json
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from hourmark.config.loading import Config
from hourmark.config.redaction import redact_setting
from hourmark_declare.doctor import http_asked
from hourmark_declare.doctor.finding import Answer, finding, not_asked, well

CHECK: Final = "services"


def ask(config: Config) -> Iterator[Answer]:
    """Each of `tailer.service_urls`, where there are sources."""
    if not config.tailer.sources:
        yield not_asked(
            CHECK, "tailer.service_urls", "without tailer.sources nothing is sent to them"
        )
        return
    told = config.tailer.tls
    context = http_asked.tls("tailer.tls", told.ca, told.certificate, told.key)
    for url in config.tailer.service_urls:
        try:
            answered = http_asked.ask(f"{url.rstrip('/')}/readyz", context)
        except OSError as error:
            yield _away(url, error)
        else:
            yield service_judged(redact_setting(url), answered.status, answered.body)


def service_judged(url: str, status: int, body: bytes) -> Answer:
    """From what /readyz says."""
    if status == 200:
        return well(CHECK, url, "ready")
    reasons = ""
    with contextlib.suppress(ValueError, AttributeError):
        reasons = "; ".join(map(str, json.loads(body).get("reasons", [])))
    return finding(
        CHECK,
        url,
        f"it answers with {status}, and takes nothing now{f': {reasons}' if reasons else ''}",
        "see its log; where it is no delivery service, tailer.service_urls names another server",
    )


def _away(url: str, error: OSError) -> Answer:
    why = str(getattr(error, "reason", error))
    if _is_here(url) and "refused" in why:
        return not_asked(
            CHECK,
            redact_setting(url),
            "no delivery service runs on this machine: `hourmark serve` starts one, and "
            "tailers wait for it",
        )
    return finding(
        CHECK,
        redact_setting(url),
        f"it does not answer: {why}",
        "see that it runs and is reached from here, and that tailer.tls fits its certificate",
    )


def _is_here(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
