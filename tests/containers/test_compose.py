"""`docker compose up`: what a program logs in its container ends in closed buckets, each line
once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.canaries import EXPECTED, acknowledged
from tests.support.compose import HOURMARK, MISSING, ROOT, Site, program

from hourmark.commands.canary import CANARY

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.containers,
    pytest.mark.long,
    pytest.mark.timeout(7200),
]

CLOSED_S = 1800.0  # a minute's bucket, after all servers came up at once, beside other work
EXPECTATIONS: dict[str, Any] = {
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
        CANARY: EXPECTED,
    },
}
TYPES = EXPECTATIONS["types"].keys()


@pytest.fixture(params=["infra/containers/small.env", ".env"], ids=["small", "full"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    command = program()
    if command is None:
        pytest.skip(MISSING)
    with Site(command, ROOT / request.param, tmp_path / "compose.log") as started:
        yield started


def test_what_is_logged_is_in_closed_buckets_each_line_once(site: Site) -> None:
    site.wait(lambda: "page-viewed" in closed(site), "a bucket is closed", CLOSED_S)
    for service, check in health_checks(site.size):
        site.exec(service, *check)
    assert site.exec("tailer", "id", "-u").strip() == "10001"
    assert "Read-only" in site.exec("tailer", "sh", "-c", "touch /opt/hourmark/x 2>&1; true")
    if site.size.name == ".env":
        break_and_mend(site)
    site.wait(
        lambda: site.ends_well("canary-check", HOURMARK, "canary", "check"),
        "the canary passes every step",
        CLOSED_S,
    )
    site.stop("application")
    site.stop("canary")
    last = minute(site)
    site.wait(
        lambda: closed(site, last).keys() >= TYPES, f"the buckets {last} are closed", CLOSED_S
    )
    assert {row["grade"] for rows in closed(site).values() for row in rows} == {"proved"}
    told = EXPECTATIONS | {"api": acknowledged(site.said("canary"))}
    judged = site.operator("judge", "check", "/dev/stdin", stdin=json.dumps(told))
    assert judged.returncode == 0, judged.stdout[-4000:] + judged.stderr[-4000:]
    compared = re.search(r"compared: ([\d,]+), of which (\d+) of the API", judged.stdout)
    assert (
        compared is not None
        and int(compared[1].replace(",", "")) > 100
        and int(compared[2]) == len(told["api"]) > 0
    )


def break_and_mend(site: Site) -> None:
    """With three of each: a broker is killed; another, a mirror's worker and a service are cut off.

    Buckets close meanwhile.
    """
    site.kill("edge-2")
    one_more_closed(site, "a broker")
    site.start("edge-2")
    for service in ("edge-1", "mirror-1", "delivery-1"):
        with site.cut_off(service):
            one_more_closed(site, service)


def one_more_closed(site: Site, lacking: str) -> None:
    """A bucket of page views, which come every second; it began after the fault."""
    fault = minute(site)
    site.wait(
        lambda: any(row["hour"] > fault for row in closed(site).get("page-viewed", ())),
        f"a bucket after {fault} is closed without {lacking}",
        CLOSED_S,
    )


def minute(site: Site) -> str:
    """Now, as buckets are named."""
    return site.exec("tailer", "date", "-u", "+%Y-%m-%dT%H:%M").strip()


def closed(site: Site, since: str = "") -> dict[str, list[dict[str, Any]]]:
    """By type, the closed buckets from this one on; where none is named, those that have events."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in site.buckets():
        if row["state"] == "closed" and (row["hour"] >= since if since else row["events"]):
            found.setdefault(row["type"], []).append(row)
    return found


def health_checks(size: Path) -> Iterator[tuple[str, list[str]]]:
    """Of the services that are started: an engine that has no scheduler for them does not ask."""
    (named,) = re.findall(r"^COMPOSE_PROFILES=(.+)$", size.read_text(), re.MULTILINE)
    chosen = set(named.split(","))
    for name, service in yaml.safe_load((ROOT / "docker-compose.yml").read_text())[
        "services"
    ].items():
        if "healthcheck" in service and chosen.issuperset(service.get("profiles", ())):
            kind, *words = service["healthcheck"]["test"]
            yield name, ["sh", "-c", *words] if kind == "CMD-SHELL" else words
