"""README's first command on a clean Debian, by somebody who may do nothing there: from a checkout
to proved buckets and a judge.

Needs root, to make the Debian, and apt that can fetch. Took 18 minutes, with all downloads, beside
much other work (a load of 15 to 38 on two cores). (The second command is what `.ci/run` runs.)
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.bare_debian import bare_debian

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.stack,
    pytest.mark.long,
    pytest.mark.timeout(3600),
]

FIRST_S = 2400.0  # with the download of all that it needs


def test_the_demo_sets_itself_up_closes_proved_buckets_and_the_judge_is_content(
    tmp_path: Path,
) -> None:
    machine = bare_debian(tmp_path / "root")
    assert (
        machine.run("sh", "-c", "command -v java pip3 git docker podman", seconds=60).stdout == ""
    ), "it has not much else"
    done = machine.run("./hourmark", "demo", "--json", seconds=FIRST_S)
    assert done.returncode == 0, done.stderr[-5000:]
    said = json.loads(done.stdout)
    assert (said["lost"], said["doubled"], said["altered"]) == (0, 0, 0)
    assert said["types"]
    for name, numbers in said["types"].items():
        assert numbers["in_buckets"] >= numbers["acknowledged"] > 0, name
        assert numbers["grades"]["proved"] >= 3, name
        assert numbers["grades"]["timed_out"] == numbers["grades"]["forced"] == 0, name
