"""The .deb packages with their units on a clean Debian: closed, proved buckets, and a judge that is
content.

Debian is made by debootstrap and booted with systemd; Kafka's two clusters, HDFS and the registry
are the local stack's, the mirror between the clusters is the package's. Needs root, and apt that
can fetch. Took 16 minutes beside much other work (a load of 35 on two cores), with packages that
were made before; making them is two to five more.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.debian_site import AS_ETL, LOGS, TYPE, UNITS, debian_site
from tests.support.booted_debian import BootedDebian
from tests.support.canaries import EXPECTED, acknowledged
from tests.support.waiting import wait_for

from hourmark.commands.canary import CANARY
from hourmark_infra.stack import LocalStack

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.stack,
    pytest.mark.long,
    pytest.mark.timeout(3600),
]

LINES = 500
CLOSED_S = 900.0


@pytest.fixture(scope="module")
def own_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """Two clusters, and nothing that mirrors one to the other."""
    stack = LocalStack.load_or_create(
        tmp_path_factory.mktemp("home"), mirror=False, bucket_seconds=60
    )
    try:
        stack.up()
        yield stack
    finally:
        stack.down()


@pytest.fixture(scope="module")
def debian(
    own_stack: LocalStack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BootedDebian]:
    with debian_site(own_stack, tmp_path_factory.mktemp("debian")) as made:
        yield made


def write(debian: BootedDebian, first: int) -> None:
    with debian.root.at(f"{LOGS}/app.log").open("ab") as file:
        file.write(
            b"".join(
                b"2026-11-21 10:00:00 INFO request %d served\n" % (first + n) for n in range(LINES)
            )
        )


def buckets(debian: BootedDebian, event_type: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(
        debian.must(
            *AS_ETL, "hourmark", "bucket", "ls", "--json", "--config", "/etc/hourmark/etl.toml"
        )
    )
    return [row for row in rows if row["type"] == event_type and row["state"] == "closed"]


def all_closed(debian: BootedDebian, events: int, event_type: str = TYPE) -> list[dict[str, Any]]:
    """Once so many events are in closed buckets."""
    found: list[dict[str, Any]] = []

    def closed() -> bool:
        nonlocal found
        failed = [unit for unit in UNITS if debian.shown(unit, "ActiveState") == "failed"]
        assert not failed, "\n".join(debian.journal(unit)[-3000:] for unit in failed)
        found = buckets(debian, event_type)
        return bool(sum(row["events"] for row in found) >= events)

    wait_for(closed, f"{events} events of {event_type} in closed buckets", CLOSED_S, 3.0)
    return found


def judged(
    debian: BootedDebian, stack: LocalStack, folder: Path, canaries: list[dict[str, Any]]
) -> str:
    """The judge's word, who finds the files where the tailer does."""
    storage = tomllib.loads(stack.layout.config_file.read_text())["storage"]
    expectations = folder / "expectations.json"
    expectations.write_text(
        json.dumps(
            {
                "webhdfs": storage["webhdfs"],
                "root": "/hourmark",
                "user": storage["user"],
                "files": [
                    {"path": f"{LOGS}/*.log*", "form": "free", "type": TYPE, "hosts": "tailer"}
                ],
                "types": {
                    TYPE: {"content": "raw-line", "field": "message", "time": "observed"},
                    CANARY: EXPECTED,
                },
                "api": canaries,
            }
        )
    )
    command = [sys.executable, "-m", "hourmark", "judge", "check", str(expectations)]
    as_there = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        'mount --bind "$0" "$1" && shift && exec "$@"',
        str(debian.root.at("/srv")),
        "/srv",
    ]
    done = subprocess.run([*as_there, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_units_of_all_packages_close_proved_buckets_also_when_each_is_killed(
    debian: BootedDebian, own_stack: LocalStack, tmp_path: Path
) -> None:
    write(debian, 0)
    debian.must("systemctl", "start", *UNITS)
    assert {row["grade"] for row in all_closed(debian, LINES)} == {"proved"}
    for unit in UNITS:
        debian.must("systemctl", "kill", "--signal=KILL", unit)
    write(debian, LINES)
    assert {row["grade"] for row in all_closed(debian, 2 * LINES)} == {"proved"}
    for unit in UNITS:
        assert int(debian.shown(unit, "NRestarts")) >= 1, unit
    debian.must("systemctl", "stop", "hourmark-canary")
    canaries = acknowledged(debian.journal("hourmark-canary"))
    assert {row["grade"] for row in all_closed(debian, len(canaries), CANARY)} == {"proved"}
    compared = f"compared: {2 * LINES + len(canaries):,}, of which {len(canaries)} of the API;"
    assert canaries and compared in judged(debian, own_stack, tmp_path, canaries)
    debian.must("systemctl", "stop", *UNITS)
    assert {debian.shown(unit, "Result") for unit in UNITS} == {"success"}
