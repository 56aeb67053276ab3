"""README on a clean Debian that has Python and nothing else, as an ordinary user: from a clone to closed, proved buckets.

Debian is made by debootstrap; packages and jars are downloaded anew, some 0.8 GB. Needs root, and apt that can fetch. Took TIME.
README's second command, `./hourmark test`, is the whole suite, and not run once more within it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.acceptance.clean_machine import CleanMachine, clean_machine

pytestmark = [pytest.mark.acceptance, pytest.mark.stack, pytest.mark.long, pytest.mark.timeout(3600)]

LOG = "/var/log/dpkg.log"  # of debootstrap's making
WITHIN_S = 1800.0


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CleanMachine]:
    with clean_machine(tmp_path_factory.mktemp("clean")) as made:
        try:
            yield made
        finally:
            made.run("./hourmark", "purge", "--yes", seconds=120)


def test_the_demo_with_a_log_of_that_machine_and_its_judge(machine: CleanMachine) -> None:
    assert machine.run("sh", "-c", "command -v java", seconds=10).returncode != 0
    said = json.loads(machine.must("./hourmark", "demo", "--json", "--lines", LOG, seconds=WITHIN_S))
    assert (said["lost"], said["doubled"], said["altered"]) == (0, 0, 0)
    for name, numbers in said["types"].items():
        assert numbers["grades"]["proved"] >= 3, name
        assert numbers["grades"]["timed_out"] == numbers["grades"]["forced"] == 0, name
    written = machine.root.at(LOG).read_bytes().count(b"\n")
    assert said["types"]["lines"]["in_buckets"] == written


def test_a_log_of_that_machine_by_one_command(machine: CleanMachine) -> None:
    said = json.loads(machine.must("./hourmark", "run", "--once", LOG, "--yes", "--json", seconds=WITHIN_S))
    assert {row["grade"] for row in said["buckets"]} == {"proved"}
    assert sum(row["events"] for row in said["buckets"]) == machine.root.at(LOG).read_bytes().count(b"\n")
