"""The audit of dependencies: what it says of a planted old version, of a database that is away, and
of one that knows nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.packaging.rooms import ROOT

pytestmark = pytest.mark.slow

PLANTED = "jinja2==2.11.2"  # CVE-2020-28493: a pattern in its urlize filter takes for ever
KNOWN = {
    "id": "GHSA-g3rq-g295-4j3m",
    "aliases": ["CVE-2020-28493"],
    "summary": "Regular Expression Denial of Service",
    "published": "2021-03-19T21:28:05Z",
    "affected": [
        {
            "package": {"name": "jinja2", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2.11.3"}]}],
            "versions": ["2.11.2"],
        }
    ],
}


@pytest.fixture
def osv() -> Iterator[str]:
    """A service that answers as OSV does, and knows of one vulnerability."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            planted = (asked["package"]["name"], asked["version"]) == ("jinja2", "2.11.2")
            content = json.dumps({"vulns": [KNOWN]} if planted else {}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1/query"
        server.shutdown()


def audit(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.audit_dependencies", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    lock = tmp_path / "planted.lock"
    lock.write_text(f"click==8.1.8\n{PLANTED}\n")
    return lock


def test_a_planted_vulnerable_version_is_found(planted: Path, osv: str) -> None:
    done = audit("--osv-url", osv, str(planted))
    assert done.returncode == 1, done.stdout + done.stderr
    assert (
        "jinja2 2.11.2: " in done.stdout
        and "CVE-2020-28493" in done.stdout
        and "fixed in 2.11.3" in done.stdout
    )
    assert "checked 2 versions, 1 vulnerable" in done.stdout
    planted.write_text("click==8.1.8\n")
    done = audit("--osv-url", osv, str(planted))
    assert (done.returncode, done.stdout) == (
        0,
        "planted.lock: checked 1 versions, 0 vulnerable\n",
    )


def test_a_database_that_is_away_is_no_good_end(planted: Path) -> None:
    done = audit("--osv-url", "http://127.0.0.1:9/v1/query", str(planted))
    assert done.returncode == 1
    assert "planted.lock: NOT CHECKED, so nothing is known: " in done.stdout


@pytest.mark.long  # network, which is tried for long where there is none
def test_the_indexs_own_database_knows_the_planted_version(planted: Path) -> None:
    done = audit(str(planted))
    if "NOT CHECKED" in done.stdout:
        assert done.returncode == 1, "versions that were not checked are not reported as safe"
        pytest.skip(
            f"no database of vulnerabilities can be reached from here: {done.stdout.strip()}"
        )
    assert done.returncode == 1
    assert "jinja2 2.11.2: " in done.stdout and "CVE-2020-28493" in done.stdout
