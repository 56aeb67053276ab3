"""Two workers of one mirror, under traffic: the one that leads is killed, paused or cut off, and
the other goes on.

Each record that was acknowledged at the edge is at the centre once, by what readers of committed
records see there; and the mirror's own check says the same. Within `WITHIN_S` of the fault
everything is copied that was written until then, and after it.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from tests.support.mirror_workers import Pair, Traffic, held, mirror_pair, own_broker, site
from tests.support.mirrored import make_topics, topic
from tests.support.net_namespace import other_host
from tests.support.secure_broker import secure_broker
from tests.support.waiting import wait_for

from hourmark.clock import SystemClock
from hourmark.kafka.clients import Cluster, client_settings
from hourmark.kafka.mirror import MirrorPositions, partitions_behind
from hourmark.kafka.topic_names import central_topic
from hourmark.process.alarms import AlarmName
from hourmark_infra.stack import LocalStack
from hourmark_infra.stack.servers import Programs
from hourmark_mirror.cli import mirror
from hourmark_mirror.run.stalls import SILENT_S
from hourmark_mirror.run.worker_group import read_connector_settings
from hourmark_mirror.settings.mirror_sites import MirrorSites
from hourmark_mirror.verify.result_formatting import format_result
from hourmark_mirror.verify.verification import Verification, VerificationResult

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

NAMES = ("first", "second", "third")
# the group's session (10 s), the zombie's fencing, the tasks' start, on a busy machine; 13 s were
# seen
WITHIN_S = 45.0
AWAY_S = 35.0  # far longer than the session
MORE = 100  # records of each partition: a second
BACK_S = 90.0
NAMED_S = 60.0


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return LocalStack.load_or_create(tmp_path_factory.mktemp("programs")).programs


@pytest.fixture
def pair(programs: Programs, tmp_path: Path) -> Iterator[Pair]:
    with mirror_pair(programs, tmp_path) as made:
        begin(made)
        yield made


def begin(pair: Pair) -> None:
    make_topics(pair.workers["first"].config, pair.central, NAMES)
    pair.start()


def copying(pair: Pair, what: str, *, more: int = MORE) -> float:
    """Wait until all is copied that is at the edge now, and so much of each partition that comes
    after; how long that took.
    """
    began_s, edge = time.monotonic(), Cluster(pair.edge, "edge")
    partitions = MirrorSites(pair.workers["first"].config).partitions()
    starts, ends = (
        edge.starts(partitions),
        {p: end + more for p, end in edge.ends(partitions).items()},
    )
    with contextlib.closing(MirrorPositions(pair.central, pair.alias)) as positions:
        wait_for(
            lambda: not partitions_behind(ends, starts, positions.refresh()),
            f"all is copied {what}",
            WITHIN_S,
            0.2,
        )
    return time.monotonic() - began_s


def away(pair: Pair, what: str) -> None:
    """For `AWAY_S` copying goes on."""
    until_s = time.monotonic() + AWAY_S
    while time.monotonic() < until_s:
        copying(pair, what)


def verdict_of(pair: Pair, timeout_s: float = WITHIN_S) -> VerificationResult:
    """What the mirror's own check says."""
    return Verification(pair.workers["first"].config, SystemClock(), topics=(), accept=False).run(
        timeout_s
    )


def assert_once(pair: Pair, traffic: Traffic, *, planted: bool = True) -> None:
    """What was acknowledged is at the centre, each record once, and nothing else; a record that is
    `planted` twice is seen.
    """
    promised = traffic.stop()
    copying(pair, "at the end", more=0)
    there_as = {central_topic(topic(n), pair.alias): topic(n) for n in NAMES}
    there = held(pair.central, there_as)
    assert sum(promised.values()) > 1000
    assert there == promised
    verdict = verdict_of(pair)
    assert verdict.ok, format_result(verdict)
    if not planted:
        return
    by_hand = Producer(client_settings(pair.central))
    by_hand.produce(next(iter(there_as)), b"record 0", b"0", partition=0)
    by_hand.flush(10)
    assert sum((held(pair.central, there_as) - promised).values()) == 1
    assert not verdict_of(pair).ok


def alarms(pair: Pair) -> set[str]:
    """Names of those that a watch tells, by whose settings there are two workers."""
    file, two = str(pair.workers["first"].file), {"HOURMARK_MIRROR__WORKERS": "2"}
    said = (
        CliRunner().invoke(mirror, ["watch", "--once", "--json", "--config", file], env=two).stdout
    )
    return {alarm["name"] for alarm in json.loads(said)["alarms"]}


def come_back(pair: Pair, after: int, traffic: Traffic) -> None:
    """Both are in one group again, and copy."""
    wait_for(lambda: pair.is_one_group(after), "both workers are in one group again", BACK_S)
    copying(pair, "with both")
    assert_once(pair, traffic)


def test_the_leading_worker_is_killed_and_the_other_goes_on(pair: Pair) -> None:
    with Traffic(pair.edge, NAMES) as traffic:
        copying(pair, "before")
        before, leading, (other,) = pair.generation(), *pair.leader()
        leading.stop()
        copying(pair, "after the kill")
        wait_for(
            lambda: AlarmName.WORKER_MISSING in alarms(pair),
            "that a worker is missing is named",
            NAMED_S,
            2.0,
        )
        leading.start()
        wait_for(lambda: AlarmName.WORKER_MISSING not in alarms(pair), "it is over", BACK_S, 2.0)
        come_back(pair, before, traffic)
        assert other.starts() == 1


@pytest.mark.long
def test_the_leading_worker_is_paused_and_wakes_as_a_zombie(pair: Pair) -> None:
    with Traffic(pair.edge, NAMES) as traffic:
        copying(pair, "before")
        before, leading, (other,) = pair.generation(), *pair.leader()
        leading.signal(signal.SIGSTOP)
        away(pair, "while it is paused")
        leading.signal(signal.SIGCONT)
        copying(pair, "after it woke")
        come_back(pair, before, traffic)
        assert (leading.starts(), other.starts()) == (1, 1)


@pytest.mark.long
def test_a_worker_that_hangs_is_started_again_by_its_supervisor(pair: Pair) -> None:
    """Java alone is paused, for good: the group goes on without it, and nothing fails."""
    with Traffic(pair.edge, NAMES) as traffic:
        copying(pair, "before")
        before, leading, (other,) = pair.generation(), *pair.leader()
        leading.signal(signal.SIGSTOP, java_alone=True)
        copying(pair, "while it hangs")
        wait_for(
            lambda: leading.starts() == 2, "its supervisor starts another Java", SILENT_S + BACK_S
        )
        assert leading.said("its worker has not answered at") == 1
        come_back(pair, before, traffic)
        assert other.starts() == 1


@pytest.mark.long
def test_the_leading_worker_is_cut_off_and_comes_back(programs: Programs, tmp_path: Path) -> None:
    """It is on another host, whose cable is pulled. It is made to lead by a kill of the first."""
    with other_host() as cable, mirror_pair(programs, tmp_path, other=cable) as pair:
        begin(pair)
        first, second = pair.workers.values()
        if pair.leader()[0] is first:
            before = pair.generation()
            first.stop()
            wait_for(lambda: pair.leader()[0] is second, "the second leads", BACK_S)
            first.start()
            wait_for(lambda: pair.is_one_group(before), "both are in one group", BACK_S)
        with Traffic(pair.edge, NAMES) as traffic:
            copying(pair, "before")
            before, started = pair.generation(), (first.starts(), second.starts())
            assert pair.leader()[0] is second
            cable.pull()
            away(pair, "while it is cut off")
            cable.plug()
            copying(pair, "after it is back")
            come_back(pair, before, traffic)
            assert (first.starts(), second.starts()) == started


@pytest.mark.long
def test_workers_take_changed_settings_one_after_the_other(pair: Pair) -> None:
    """Whoever leads writes what all run with; so the change is in force once the last of them was
    restarted.
    """
    tasks = {"tasks_max": 3}
    with Traffic(pair.edge, NAMES) as traffic:
        copying(pair, "before")
        started = pair.generation()
        for worker in pair.workers.values():
            before = pair.generation()
            worker.stop()
            worker.change(**tasks)
            worker.start()
            wait_for(
                lambda before=before: pair.is_one_group(before),  # type: ignore[misc]
                "both are in one group",
                BACK_S,
            )
            copying(pair, "with one more worker that was changed")
        wait_for(
            lambda: read_connector_settings(pair.central, pair.alias)["tasks.max"] == "3",
            "the change is in force",
            BACK_S,
        )
        come_back(pair, started, traffic)


@pytest.mark.long
def test_two_sites_share_a_centre_and_neither_is_the_others_matter(
    programs: Programs, tmp_path: Path
) -> None:
    """The same types at two edges, a mirror for each. One stands still: it is behind, and the other
    is well and goes on.
    """
    with (
        own_broker(programs, tmp_path / "central") as central,
        site(programs, tmp_path / "east", central, alias="east") as east,
        site(programs, tmp_path / "west", central, alias="west") as west,
    ):
        for pair in (east, west):
            make_topics(pair.workers["first"].config, central, NAMES)
            pair.workers["first"].start()
        with (
            Traffic(east.edge, NAMES, told="east") as at_east,
            Traffic(west.edge, NAMES, told="west") as at_west,
        ):
            for pair in (east, west):
                copying(pair, f"of {pair.alias}")
            west.workers["first"].signal(signal.SIGSTOP)
            away(east, "while the other site's mirror is paused")
            assert verdict_of(east).ok
            assert verdict_of(west, 0.0).behind
            west.workers["first"].signal(signal.SIGCONT)
            copying(west, "after it woke")
            assert_once(east, at_east, planted=False)
            assert_once(west, at_west, planted=False)


@pytest.mark.long
def test_workers_with_passwords_need_no_file_of_each_other(
    programs: Programs, tmp_path: Path
) -> None:
    """The leader writes the settings that all run with; what they refer to must be each worker's
    own.
    """
    with (
        secure_broker(tmp_path / "central", programs) as broker,
        site(programs, tmp_path, broker.scram) as pair,
    ):
        begin(pair)
        with Traffic(pair.edge, NAMES) as traffic:
            copying(pair, "before")
            leading, (other,) = pair.leader()
            leading.stop()
            shutil.rmtree(leading.config.mirror.work_dir)  # as if it had been on another host
            copying(pair, "by the other")
            assert_once(pair, traffic)
            assert other.starts() == 1
