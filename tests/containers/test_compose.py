"""`docker compose up`: what a program logs in its container ends in closed buckets, each line once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.support.compose import MISSING, ROOT, Site, program

pytestmark = [pytest.mark.acceptance, pytest.mark.containers, pytest.mark.long, pytest.mark.timeout(3600)]

CLOSED_S = 900.0  # a minute's bucket, after all servers came up at once
EXPECTATIONS = {
    "webhdfs": "http://namenode:9870",
    "root": "/hourmark",
    "user": "hourmark",
    "files": [{"path": "/var/log/app/app.log*", "hosts": "line"}],
    "types": {
        "page-viewed": {
            "content": "json",
            "fields": [
                {"name": "page", "type": "string"},
                {"name": "milliseconds", "type": "long"},
                {"name": "user", "type": ["null", "string"]},
            ],
        },
        "app-log": {"content": "msg-bytes", "field": "message"},
    },
}


@pytest.fixture(params=["infra/containers/small.env", ".env"], ids=["small", "full"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    command = program()
    if command is None:
        pytest.skip(MISSING)
    with Site(command, ROOT / request.param, tmp_path / "compose.log") as started:
        yield started


def test_what_is_logged_is_in_closed_buckets_each_line_once(site: Site) -> None:
    site.wait(lambda: bool(closed(site)), "a bucket is closed", CLOSED_S)
    for service, check in health_checks(site.size):
        site.exec(service, *check)
    assert site.exec("tailer", "id", "-u").strip() == "10001"
    assert "Read-only" in site.exec("tailer", "sh", "-c", "touch /opt/hourmark/x 2>&1; true")
    if site.size.name == ".env":
        break_and_mend(site)
    site.stop("application")
    last = site.exec("tailer", "date", "-u", "+%Y-%m-%dT%H:%M").strip()
    site.wait(lambda: any(row["hour"] >= last for row in closed(site)), f"the bucket {last} is closed", CLOSED_S)
    assert {row["grade"] for row in closed(site)} == {"proved"}
    judged = site.operator("judge", "check", "/dev/stdin", stdin=json.dumps(EXPECTATIONS))
    assert judged.returncode == 0, judged.stdout[-4000:] + judged.stderr[-4000:]
    compared = re.search(r"compared: ([\d,]+),", judged.stdout)
    assert compared is not None and int(compared[1].replace(",", "")) > 100


def break_and_mend(site: Site) -> None:
    """With three of each: a broker is killed; another, a mirror's worker and a service are cut off. Buckets close meanwhile."""
    site.kill("edge-2")
    before = len(closed(site))
    site.wait(lambda: len(closed(site)) > before, "a bucket is closed without a broker", CLOSED_S)
    site.start("edge-2")
    for service in ("edge-1", "mirror-1", "delivery-1"):
        with site.cut_off(service):
            before = len(closed(site))
            site.wait(lambda before=before: len(closed(site)) > before, f"a bucket is closed without {service}", CLOSED_S)  # type: ignore[misc]


def closed(site: Site) -> list[dict[str, str]]:
    """Of page views, which come every second."""
    return [row for row in site.buckets() if row["type"] == "page-viewed" and row["state"] == "closed" and row["events"]]


def health_checks(size: Path) -> Iterator[tuple[str, list[str]]]:
    """Of the services that are started: an engine that has no scheduler for them does not ask."""
    (named,) = re.findall(r"^COMPOSE_PROFILES=(.+)$", size.read_text(), re.MULTILINE)
    chosen = set(named.split(","))
    for name, service in yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"].items():
        if "healthcheck" in service and chosen.issuperset(service.get("profiles", ())):
            kind, *words = service["healthcheck"]["test"]
            yield name, ["sh", "-c", *words] if kind == "CMD-SHELL" else words
