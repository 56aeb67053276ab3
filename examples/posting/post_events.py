"""Post events from standard input to Hourmark: one JSON object per line, with retries.

    python3 post_events.py [--validate-only] URL TYPE < events.ndjson

The environment variable HOURMARK_TOKEN holds the token if the service requires one.
HOURMARK_RETRY_SECONDS is the time after which a batch is given up (default 600).

Exit codes:
    0  every event was stored (or, with --validate-only, is valid)
    1  every batch was processed, but some events were rejected: see standard error
    2  a request was refused, or the arguments are wrong: a retry cannot succeed
    3  a batch was given up after retries: it may or may not have been stored
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import random
import secrets
import sys
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

BATCH_LINES_MAX = 500
BATCH_BYTES_MAX = 1_000_000  # the service accepts 1 MiB (service.range_bytes_max)
RESPONSE_TIMEOUT_S = 60.0  # longer than the service waits for Kafka
BACKOFF_S = 0.5
BACKOFF_MAX_S = 30.0
RETRIED = {408, 429, 500, 502, 503, 504}  # temporary; every other status is final


class Refused(Exception):
    """The service refused the request. Nothing was stored, and a retry cannot succeed."""


class GaveUp(Exception):
    """No attempt succeeded in time."""


def uuid7() -> str:
    """Return a new UUIDv7 (RFC 9562): 48 bits of Unix milliseconds, then random bits."""
    value = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) | 7 << 76  # version
    value = value & ~(0x3 << 62) | 2 << 62  # variant
    return str(uuid.UUID(int=value))


def batches(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield the lines in batches that the service accepts. A single line may be longer."""
    batch: list[bytes] = []
    size = 0
    for line in lines:
        if batch and (len(batch) == BATCH_LINES_MAX or size + len(line) > BATCH_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += len(line)
    if batch:
        yield batch


def send(url: str, headers: dict[str, str], body: bytes) -> tuple[int, float, str]:
    """Send one request; return the status, the seconds of Retry-After (or 0), and the body."""
    parts = urlsplit(url)
    https = parts.scheme == "https"
    connect = http.client.HTTPSConnection if https else http.client.HTTPConnection
    connection = connect(parts.netloc, timeout=RESPONSE_TIMEOUT_S)
    try:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            # a refusal may come, and end the connection, before all of the body was sent
            connection.request("POST", parts.path, body, headers)
        response = connection.getresponse()
        retry_after = response.headers.get("Retry-After", "")
        text = response.read().decode(errors="replace")
        return response.status, float(retry_after) if retry_after.isdigit() else 0.0, text
    finally:
        connection.close()


def post_batch(url: str, body: bytes, token: str, retry_s: float) -> dict[str, Any]:
    """Post one batch until it is answered, and return the response.

    Raises:
        Refused: The service refused the request.
        GaveUp: No attempt succeeded within `retry_s` seconds.
    """
    # One key for all attempts: it makes each retry the same batch, so that nothing is stored twice.
    headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": uuid7()}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    give_up_at = time.monotonic() + retry_s
    for attempt in itertools.count():
        retry_after_s = 0.0
        try:
            status, retry_after_s, text = send(url, headers, body)
            if status == 200:
                response: dict[str, Any] = json.loads(text)
                return response
            problem = f"{status} {text.strip()}"
            if status not in RETRIED:
                raise Refused(problem)
        except (OSError, http.client.HTTPException, json.JSONDecodeError) as error:
            problem = repr(error)  # no complete response: the batch may have been stored
        backoff_s = min(BACKOFF_MAX_S, BACKOFF_S * 2 ** min(attempt, 10))
        delay_s = retry_after_s + random.uniform(0, backoff_s)  # noqa: S311  # jitter
        if time.monotonic() + delay_s > give_up_at:
            raise GaveUp(problem)
        print(f"retry in {delay_s:.1f} s: {problem}", file=sys.stderr)
        time.sleep(delay_s)
    raise AssertionError("unreachable")


def main(arguments: list[str]) -> int:
    validate_only = arguments[:1] == ["--validate-only"]
    if len(arguments) != 2 + validate_only or not arguments[-2].startswith(("http:", "https:")):
        print("usage: post_events.py [--validate-only] URL TYPE < events.ndjson", file=sys.stderr)
        return 2
    base, event_type = arguments[-2:]
    url = f"{base.rstrip('/')}/v1/events/{event_type}{':validate' if validate_only else ''}"
    token = os.environ.get("HOURMARK_TOKEN", "")
    retry_s = float(os.environ.get("HOURMARK_RETRY_SECONDS", "600"))
    first = 1  # number of the first line of the batch
    accepted = rejected = 0
    for batch in batches(sys.stdin.buffer):
        try:
            response = post_batch(url, b"".join(batch), token, retry_s)
        except (Refused, GaveUp) as error:
            what = "refused" if isinstance(error, Refused) else "given up"
            print(f"lines from {first} on: {what}: {error}", file=sys.stderr)
            return 2 if isinstance(error, Refused) else 3
        accepted += response["events"]
        rejected += response["dead_letters"]
        for row in response.get("rejected", ()):
            detail = row.get("detail", "")
            print(f"line {first + row['index']}: {row['reason']}: {detail}", file=sys.stderr)
        first += len(batch)
    print(f"{accepted} events {'valid' if validate_only else 'stored'}, {rejected} rejected")
    return 1 if rejected else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
