"""A tailer in another network namespace delivers over TLS with a token, and without one is
refused.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.certificates import Authority
from tests.support.net_namespace import OtherHost, other_host
from tests.support.service.examples import NOW_MS, syslog
from tests.support.service.threaded import Served, served
from tests.support.service.tokens import of_tailer, record
from tests.support.waiting import wait_for

from hourmark.config.groups import ServiceTls

LINES = 500


@pytest.fixture
def elsewhere() -> Iterator[OtherHost]:
    with other_host() as host:
        yield host


@contextmanager
def tailing(elsewhere: OtherHost, config: Path) -> Iterator[Path]:
    """`hourmark tail`, a process there; its log."""
    log = config.with_suffix(".log")
    with log.open("w") as written:
        process = subprocess.Popen(
            [*elsewhere.run, sys.executable, "-m", "hourmark", "tail", "--config", str(config)],
            stdout=written,
            stderr=written,
        )
        try:
            yield log
        finally:
            process.terminate()
            assert process.wait(30) == 0, log.read_text()


@pytest.mark.slow
def test_a_tailer_elsewhere_delivers_over_tls_with_a_token_and_without_one_is_refused(
    tmp_path: Path, elsewhere: OtherHost
) -> None:
    pair = (authority := Authority(tmp_path / "ca")).issue("service", elsewhere.address)
    tls = ServiceTls(certificate=pair.certificate, key=pair.key)
    (logs := tmp_path / "logs").mkdir()
    (logs / "app.log").write_bytes(
        b"".join(syslog(msg=b'{"user":"u%d","ms":1}' % n) for n in range(LINES))
    )
    config = tmp_path / "tailer.toml"
    text = f"""
[tailer]
state_dir = "{tmp_path}/state"
service_urls = ["https://{elsewhere.address}:PORT"]
scan_seconds = 0.05
report_seconds = 0.1
backoff_max_seconds = 0.2
[tailer.tls]
ca = "{authority.ca}"
[[tailer.sources]]
name = "app"
paths = ["{logs}/*.log"]
"""
    with served(tls, host=elsewhere.address, tokens_required=True) as service:
        config.write_text(text.replace("PORT", str(service.port)))
        token = of_tailer(service.harness, socket.gethostname())
        with tailing(elsewhere, config) as log:
            wait_for(
                lambda: (
                    "responded with status 401: the request has no Authorization header"
                    in log.read_text()
                ),
                "it is refused, and says why",
            )
        assert service.harness.queue.records == [], "neither events nor reports"
        (tmp_path / "token").write_text(token.text)
        config.write_text(
            config.read_text().replace(
                "[tailer.tls]", f'token_file = "{tmp_path}/token"\n[tailer.tls]'
            )
        )
        with tailing(elsewhere, config) as log:
            wait_for(lambda: clicks(service) >= LINES, "all lines")
            service.harness.service.access.token_store.feed(
                [record(token.token.revoke(NOW_MS))], from_start=False
            )
            wait_for(lambda: "was revoked" in log.read_text(), "it is told")
        assert token.text not in log.read_text()
        assert clicks(service) == LINES


def clicks(service: Served) -> int:
    return len({appended.key for appended in service.harness.queue.of("events.click")})
