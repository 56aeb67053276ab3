"""docs/start/first-bucket.md as a new user types it: each command of its console blocks is run or
accounted for.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Iterator

import pytest
from tests.support.documents import ROOT, console_lines
from tests.support.page_shell import PageShell, page_shell
from tests.support.waiting import wait_for

from hourmark.records.hours import Hour
from hourmark_etl.operators.buckets.exits import BucketExit

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]

COMMANDS = console_lines((ROOT / "docs" / "start" / "first-bucket.md").read_text())
# from the event to the closed bucket: the page's three minutes, and two for a busy machine
FIRST_BUCKET_S = 300.0
JOBS = "kill %1 %2"  # of an interactive shell; here they are ended by their process ids


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageShell]:
    with page_shell(ROOT, tmp_path_factory.mktemp("first-bucket")) as made:
        yield made


def documented(start: str) -> str:
    """The page's one command that begins so; it may be there twice."""
    (found,) = {command for command in COMMANDS if command.startswith(start)}
    return found


def curl(service: str, start: str) -> str:
    """The page's one `curl` that begins so, to the address that `up` printed, which is another one
    if the page's port is in use.
    """
    return documented(f"curl -fsS --retry 30 {start}").replace("http://127.0.0.1:8780", service)


def bucket_with_events(shell: PageShell, since: Hour) -> str | None:
    """The hour of a closed bucket from `since` on that holds a page view."""
    rows = json.loads(shell.run("./hourmark bucket ls --json"))
    found = [
        row["hour"]
        for row in rows
        if row["type"] == "page-viewed" and row["events"] and Hour.parse(row["hour"], 60) >= since
    ]
    return found[0] if found else None


def post(shell: PageShell, service: str) -> Hour:
    """Post the documented event; the minute whose bucket it belongs to."""
    answer = json.loads(shell.run(curl(service, "-H")))
    assert (answer["events"], answer["dead_letters"], answer["delivery"]) == (1, 0, "exactly once")
    return Hour.containing(int(answer["repeat"]["Hourmark-Observed-At"]), 60)


def test_no_command_of_the_page_is_left_out() -> None:
    covered = (
        "./hourmark up",
        "./hourmark types check",
        "./hourmark types apply",
        "./hourmark serve",
        "./hourmark etl run",
        "curl",
        "minute=",
        "./hourmark status",
        "./hourmark bucket ls",
        "./hourmark bucket why",
        "./hourmark bucket show",
        "./hourmark bucket cat",
        "PYSPARK_PYTHON=",
        "./hourmark down",
        "./hourmark purge",
    )
    for command in COMMANDS:
        assert command.startswith(covered) or command == JOBS, (
            f"{command}: documented, but not tested here"
        )


@pytest.mark.long
def test_the_page_works_as_it_is_written(shell: PageShell) -> None:
    (service,) = re.findall(
        r"^Service: +(\S+),", shell.run(documented("./hourmark up")), re.MULTILINE
    )
    for start in ("./hourmark types check", "./hourmark types apply"):
        shell.run(documented(start))
    serve = shell.start(documented("./hourmark serve"))
    etl = shell.start(documented("./hourmark etl run &"))
    shell.run(curl(service, "--retry-connrefused"))  # at once: the service need not be ready
    minute = post(shell, service)
    posted_s = time.monotonic()
    said = Hour.parse(shell.run(f'{documented("minute=")}; echo "$minute"').strip(), 60)
    assert said in (minute, minute.next()), "the clock may have passed the minute's end in between"
    shell.env["minute"] = str(minute)
    ends = (BucketExit.OPEN, BucketExit.PROVED)
    why = documented("./hourmark bucket why")
    assert shell.run(why, ends).startswith(f"page-viewed {minute}: ")
    shell.run(documented("./hourmark status"))
    wait_for(
        lambda: f"page-viewed {minute}: closed as proved" in shell.run(why, ends),
        "the first bucket closed",
        FIRST_BUCKET_S,
    )
    print(f"the first bucket was closed {time.monotonic() - posted_s:.0f} s after its event")
    assert f"page-viewed {minute}: proved, 1 event" in shell.run(
        documented("./hourmark bucket show")
    )
    assert '"/start"' in shell.run(documented("./hourmark bucket cat"))
    assert str(minute) in shell.run(documented("./hourmark bucket ls"))
    shell.stop(etl)
    assert shlex.split(documented("PYSPARK_PYTHON="))[-1] == "etl/job.py"
    submitted = shell.start(documented("PYSPARK_PYTHON="))
    minute = post(shell, service)
    wait_for(
        lambda: bucket_with_events(shell, minute) is not None,
        "the posted event in a closed bucket",
        240,
    )
    for process in (serve, submitted):
        shell.stop(process)
    for start in ("./hourmark down", "./hourmark purge"):
        shell.run(documented(start))
