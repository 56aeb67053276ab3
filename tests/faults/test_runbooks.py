"""Each runbook's fault is injected into a real site; the commands of its page, taken from the page,
print what it says, end the fault, and show that it is over.

One stack of its own: its servers are killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.runbook_site import SOURCE, TYPE, RunbookSite, running_site
from tests.support.runbooks import OVER, SEEN, TO_DO, Page
from tests.support.servers import come_back, set_safe_mode
from tests.support.shifted_clock import shift
from tests.support.stacks import running_stack
from tests.support.waiting import wait_for

from hourmark_infra.stack import LocalStack

pytestmark = [
    pytest.mark.stack,
    pytest.mark.chaos,
    pytest.mark.long,
    pytest.mark.timeout(1800),
]

DISK_MIB = 4


@pytest.fixture(scope="module")
def own_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """One cluster, HDFS and the registry; or what HOURMARK_TEST_HOME names, left running."""
    home = tmp_path_factory.mktemp("runbooks")
    with running_stack(
        lambda: LocalStack.load_or_create(home, clusters=1, mirror=False, bucket_seconds=60)
    ) as running:
        yield running


@pytest.fixture(scope="module")
def running(own_stack: LocalStack) -> Iterator[RunbookSite]:
    with running_site(own_stack, own_stack.home / "site") as made:
        yield made


@pytest.fixture
def site(running: RunbookSite) -> RunbookSite:
    """Well at the start of each test, whatever the one before left."""
    running.clock.unlink(missing_ok=True)
    running.declare()
    running.start("service", "tailer", "etl")
    return running


@pytest.mark.parametrize("hangs", [False, True], ids=["killed", "hanging"])
def test_a_driver_that_is_dead_or_hangs(site: RunbookSite, hangs: bool) -> None:
    page, hour = Page.read("driver-down"), str(site.write())
    if hangs:
        os.kill(site.components.running["etl"].pid, signal.SIGSTOP)
    else:
        site.components.kill("etl")
    page.play(SEEN, site.execute, of(hour))
    page.play(TO_DO, site.execute)
    page.play(OVER, site.execute, of(hour))


def test_hdfs_in_safe_mode(site: RunbookSite) -> None:
    page, hour = Page.read("hdfs-down"), str(site.write())
    set_safe_mode(site.stack, "enter")
    try:
        page.play(SEEN, site.execute, of(hour), block=0)
        page.play(TO_DO, site.execute, block=0)
    finally:
        set_safe_mode(site.stack, "leave")
    page.play(OVER, site.execute, of(hour))


def test_a_namenode_that_is_away(site: RunbookSite) -> None:
    page, hour = Page.read("hdfs-down"), str(site.write())
    site.stack.kill("namenode")
    try:
        page.play(SEEN, site.execute, block=1)
        page.play(TO_DO, site.execute, block=1)
    finally:
        come_back(site.stack, "namenode")
    page.play(OVER, site.execute, of(hour))


def test_a_datanode_that_is_away(site: RunbookSite) -> None:
    page = Page.read("datanode-down")
    site.stack.kill("datanode")
    try:
        page.play(SEEN, site.execute)
        page.play(TO_DO, site.execute, block=1)
        page.play(TO_DO, site.execute, block=0)  # lists it among the live ones now
    finally:
        come_back(site.stack, "datanode")
    page.play(OVER, site.execute)
    site.closes(site.write())


def test_a_registry_that_is_away(site: RunbookSite) -> None:
    page = Page.read("registry-down")
    site.stack.kill("registry")
    try:
        page.play(SEEN, site.execute)
        assert site.components.is_running("service")
        page.play(TO_DO, site.execute)
    finally:
        come_back(site.stack, "registry")
    page.play(OVER, site.execute)


def test_a_service_whose_brokers_are_away(site: RunbookSite) -> None:
    page, brokers = Page.read("service-not-ready"), site.stack.brokers
    for broker in brokers:
        site.stack.kill(broker)
    try:
        page.play(SEEN, site.execute)
        page.play(TO_DO, site.execute)
    finally:
        come_back(site.stack, *brokers)
    page.play(OVER, site.execute)
    site.closes(site.write())


def test_a_clock_hours_ahead(site: RunbookSite) -> None:
    page = Page.read("clock-skew")
    shift(site.clock, 3 * 3_600_000)
    page.play(SEEN, site.execute, of(ended(site)))
    page.play(TO_DO, site.execute)
    page.play(OVER, site.execute, of(ended(site)))


def test_a_tailer_that_is_silent(site: RunbookSite) -> None:
    page = Page.read("tailer-silent")
    site.components.kill("tailer")
    hour = str(site.write())
    page.play(SEEN, site.execute, of(hour))
    page.play(TO_DO, site.execute)
    page.play(OVER, site.execute, of(hour))


def test_an_hour_that_is_overdue(site: RunbookSite) -> None:
    page = Page.read("hour-overdue")
    site.components.kill("tailer")
    try:
        hour = str(site.write())
        for section in (SEEN, TO_DO, OVER):
            page.play(section, site.execute, of(hour))
    finally:
        site.start("tailer")


def test_lines_that_become_dead_letters(site: RunbookSite) -> None:
    page = Page.read("dead-letters-rising")
    site.well("types", "apply")
    names = {"SOURCE": SOURCE, "REASON": "no_pattern", "TYPE": TYPE}
    site.write("visits=1 from=web", "visits=2 from=api")
    page.play(SEEN, site.execute, names)
    visit = (site.types / "visit.toml").read_text()
    site.declare(visit=visit.replace("[0-9]+)'", r"[0-9]+)( from=\w+)?'"))
    page.play(TO_DO, site.execute, {**names, "FILE": str(site.log)})
    hour = site.write("visits=3 from=api")
    page.play(OVER, site.execute, {**names, "HOUR": str(hour)})


def test_a_token_that_is_rejected(site: RunbookSite) -> None:
    page = Page.read("token-rejected")
    site.well("token", "revoke", site.token_id())
    hour = site.write()
    for section in (SEEN, TO_DO, OVER):
        page.play(section, site.execute)
    site.closes(hour)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few MiB."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "hourmark-test", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("only root may mount a small file system to fill")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_a_tailer_whose_disk_is_full(
    site: RunbookSite, small_disk: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    page = Page.read("disk-full")
    with site.log_host(tmp_path_factory.mktemp("host"), small_disk / "tailer") as host:
        host.start("tailer")
        host.write()
        page.play(OVER, host.execute)
        ballast = fill(small_disk)
        host.write(*(f"visits={n}" for n in range(50_000)))
        page.play(SEEN, host.execute)
        host.says("tailer", "check that the disk is not full")
        ballast.unlink()
        page.play(OVER, host.execute)
        assert "no tailer runs" not in host.hourmark("tail", "status").stdout
        host.components.stop("tailer")
        host.well("tail", "--drain")


def test_a_topic_with_too_short_a_retention(site: RunbookSite) -> None:
    page = Page.read("retention-short")
    broker = site.stack.layout.bootstrap("edge").split(",")[0]
    given = {"TYPE": TYPE, "BROKER": broker}
    (command,) = page.blocks(TO_DO)[0]
    site.execute(command.filled(given).line.replace("604800000", "60000"))
    try:
        page.play(SEEN, site.execute, given)
    finally:
        page.play(TO_DO, site.execute, given)
    page.play(OVER, site.execute, given)


def fill(disk: Path) -> Path:
    """Take all the room that is left; the file that has it."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    return ballast


def of(hour: str) -> dict[str, str]:
    """The words in capitals that stand for a bucket."""
    return {"TYPE": TYPE, "HOUR": hour}


def ended(site: RunbookSite) -> str:
    """A bucket with an event, once it has ended by the driver's clock."""
    hour = site.write()
    wait_for(lambda: time.time() > hour.end_ms / 1000, f"{hour} has ended", 120)
    return str(hour)
