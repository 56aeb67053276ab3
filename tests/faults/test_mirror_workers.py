"""Two workers of one mirror, under traffic: the one that leads is killed, paused or cut off, and the other goes on.

Each record that was acknowledged at the edge is at the centre once, by what readers of committed records see there; and the
mirror's own check says the same. Within `WITHIN_S` of the fault everything is copied that was written until then, and after it.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.outcome import LONG
from tests.support.mirror_workers import Pair, Traffic, Worker, held, mirror_pair
from tests.support.mirrored import make_topics, topic
from tests.support.net_namespace import other_host
from tests.support.waiting import wait_for

from hourmark.clock import SystemClock
from hourmark.kafka import Cluster
from hourmark.mirror_positions import MirrorPositions, reached
from hourmark.topics import central_topic
from hourmark_infra.stack import Stack
from hourmark_infra.stack.servers import Programs
from hourmark_mirror.sites import Sites
from hourmark_mirror.verdict_text import as_lines
from hourmark_mirror.verification import Verification

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

NAMES = ("first", "second", "third")
WITHIN_S = 45.0  # the group's session (10 s), the zombie's fencing, the tasks' start, on a busy machine
PAUSED_S = 40.0
MORE = 100  # records of each partition: a second


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return Stack.load_or_make(tmp_path_factory.mktemp("programs")).programs


@pytest.fixture
def pair(programs: Programs, tmp_path: Path) -> Iterator[Pair]:
    with mirror_pair(programs, tmp_path) as made:
        begin(made)
        yield made


@pytest.fixture
def pair_apart(programs: Programs, tmp_path: Path) -> Iterator[Pair]:
    """The second worker is on another host."""
    with other_host() as other, mirror_pair(programs, tmp_path, other=other) as made:
        made.cable = other
        begin(made)
        yield made


def begin(pair: Pair) -> None:
    make_topics(pair.workers["first"].config, pair.central, NAMES)
    pair.start()


def caught_up(pair: Pair, what: str, *, more: bool = True) -> float:
    """Wait until all is copied that is at the edge now, and something of each partition that comes after; how long that took."""
    began_s, edge = time.monotonic(), Cluster(pair.edge, "edge")
    partitions = Sites(pair.workers["first"].config).partitions()
    starts, now = edge.starts(partitions), edge.ends(partitions)
    ends = {p: end + MORE for p, end in now.items()} if more else now
    positions = MirrorPositions(pair.central, pair.alias)
    wait_for(lambda: not reached(ends, starts, positions.refresh()), f"all is copied {what}", WITHIN_S, 0.2)
    positions.close()
    return time.monotonic() - began_s


def assert_once(pair: Pair, traffic: Traffic) -> None:
    """What was acknowledged is at the centre, each record once, and nothing else."""
    promised = traffic.stop()
    caught_up(pair, "at the end", more=False)
    there = held(pair.central, {central_topic(topic(n), pair.alias): topic(n) for n in NAMES})
    assert sum(promised.values()) > 1000
    assert there == promised
    verdict = Verification(pair.workers["first"].config, SystemClock(), topics=(), accept=False).run(30.0)
    assert verdict.ok, as_lines(verdict)


def test_the_leading_worker_is_killed_and_the_other_goes_on(pair: Pair) -> None:
    with Traffic(pair.edge, NAMES) as traffic:
        caught_up(pair, "before")
        leading, (other,) = pair.leader()
        leading.stop()
        print("kill: caught up after", caught_up(pair, "after the kill"))
        assert other.starts() == 1
        leading.start()
        wait_for(pair.is_one_group, "the killed one is in the group again", 60)
        print("kill: caught up after", caught_up(pair, "with both"))
        assert_once(pair, traffic)


def test_the_leading_worker_is_paused_and_wakes_as_a_zombie(pair: Pair) -> None:
    with Traffic(pair.edge, NAMES) as traffic:
        caught_up(pair, "before")
        leading, (other,) = pair.leader()
        before = pair.generation()
        leading.signal(signal.SIGSTOP)
        print("pause: caught up after", caught_up(pair, "while it is paused"))
        time.sleep(PAUSED_S)
        leading.signal(signal.SIGCONT)
        print("pause: woken, caught up after", caught_up(pair, "with the zombie"))
        wait_for(lambda: pair.is_one_group(after=before), "the paused one is in the group again", 60)
        time.sleep(20)
        print("starts", leading.starts(), other.starts())
        print("pause: caught up after", caught_up(pair, "with both"))
        assert_once(pair, traffic)


def test_the_leading_worker_is_cut_off_and_comes_back(pair_apart: Pair) -> None:
    pair = pair_apart
    with Traffic(pair.edge, NAMES) as traffic:
        caught_up(pair, "before")
        leading, (other,) = pair.leader()
        if leading is pair.workers["first"]:
            leading.stop()
            wait_for(lambda: pair.leader()[0] is other, "the other leads", 60)
            leading.start()
            wait_for(pair.is_one_group, "both", 60)
            leading, (other,) = pair.leader()
        print("leads", leading.rest)
        before = pair.generation()
        pair.cable.pull()
        print("cut: caught up after", caught_up(pair, "while it is cut off"))
        time.sleep(PAUSED_S)
        pair.cable.plug()
        print("cut: plugged, caught up after", caught_up(pair, "after"))
        wait_for(lambda: pair.is_one_group(after=before), "the cut one is in the group again", 90)
        time.sleep(20)
        print("starts", leading.starts(), other.starts())
        print("cut: caught up after", caught_up(pair, "with both"))
        assert_once(pair, traffic)
