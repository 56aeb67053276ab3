"""What is planted into the evidence of a run is found, each by its own kind; a checker that finds
nothing is told of.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.faults.chaos import planted
from tests.faults.chaos.checkers import CHECKERS, check
from tests.faults.chaos.evidence import Evidence, Injected
from tests.faults.chaos.flows import Flow
from tests.faults.chaos.sampling import smallest_sample
from tests.support.judged.world import START_MS, World, rfc5424, small_world
from tests.unit.verify.judge.random_worlds import LocalHdfs
from tests.unit.verify.judge.test_judge_copied_files import NEW, OLD, Copied

from hourmark_verify.judge.buckets import group_by_bucket, read_tree
from hourmark_verify.judge.expectations import Expectations
from hourmark_verify.judge.webhdfs import hdfs_path

MESSAGE = re.compile(rb"app - lines - (.)")  # these lines have no numbers
INJECTED = Injected(
    fault="f",
    goes_on=frozenset((Flow.MIRROR,)),
    began_s=100.0,
    healed_s=130.0,
    all_healed_s=130.0,
    recovered_s=200.0,
)


@contextlib.contextmanager
def evidence_of(world: World, **seen: Any) -> Iterator[Evidence]:
    """Of a run in which nothing was wrong, and that left this world, which is written now."""
    world.write()
    told = Expectations.model_validate(world.expectations())
    with contextlib.closing(LocalHdfs(world.hdfs)) as hdfs:
        evidence = Evidence(
            told=told,
            hdfs=hdfs,
            injected=[INJECTED],
            moved={Flow.MIRROR: [110.0]},
            watched=frozenset((Flow.MIRROR,)),
            first_seen={("lines", START_MS): START_MS + 1},
            kept=group_by_bucket(read_tree(hdfs, hdfs_path(told.root))),
            may_be_late=1,
            api_types=frozenset(),
            ended=[],
        )
        yield replace(evidence, **seen)


@pytest.fixture
def evidence(tmp_path: Path) -> Iterator[Evidence]:
    """Of a small world."""
    with evidence_of(small_world(tmp_path)) as small:
        yield small


def test_a_run_in_which_nothing_is_wrong_has_no_findings(evidence: Evidence) -> None:
    findings = check(evidence)
    assert not findings, findings.said
    assert findings.compared > 0


def test_a_run_that_is_not_drained_in_the_end_is_judged_and_says_so(evidence: Evidence) -> None:
    findings = check(replace(evidence, undrained="host-a: the command did not end within 300 s"))
    assert findings == {"not drained": 1}
    assert findings.said == [
        "not drained: when all faults were over: host-a: the command did not end within 300 s"
    ]
    assert findings.compared > 0


OTHER = replace(INJECTED, fault="g", began_s=101.0)


def test_a_round_that_is_not_drained_is_one_violation_of_no_single_fault(
    evidence: Evidence,
) -> None:
    late = [replace(of, recovered_s=900.0) for of in (INJECTED, OTHER)]
    findings = check(replace(evidence, injected=late))
    assert findings == {"not drained": 1}
    assert (findings.blamed, findings.shared) == ({}, [("not drained", ["f", "g"])])
    assert findings.said == ["not drained: f, g, within 180 s of their end"]


def test_rounds_with_one_fault_each_are_violations_of_these_faults(evidence: Evidence) -> None:
    later = replace(
        INJECTED, fault="g", began_s=2000.0, healed_s=2030.0, all_healed_s=2030.0, recovered_s=None
    )
    late = [replace(INJECTED, recovered_s=900.0), later]
    findings = check(replace(evidence, injected=late, moved={Flow.MIRROR: [110.0, 2010.0]}))
    assert findings == {"not drained": 2}
    assert (findings.blamed, findings.shared) == ({"f": 1, "g": 1}, [])


def test_one_standstill_during_two_faults_is_one_violation(evidence: Evidence) -> None:
    stood = replace(evidence, moved={})
    alone = check(stood)
    assert (alone, alone.blamed, alone.shared) == ({"stood still": 1}, {"f": 1}, [])
    both = check(replace(stood, injected=[INJECTED, OTHER]))
    assert (both, both.blamed) == ({"stood still": 1}, {})
    assert both.shared == [("stood still", ["f", "g"])]


def test_a_fault_that_fails_beside_another_is_not_known_to_be_the_cause(
    evidence: Evidence,
) -> None:
    failed = replace(OTHER, failed="the alarm did not come")
    findings = check(replace(evidence, injected=[INJECTED, failed]))
    assert (findings, findings.blamed) == ({"not healed": 1}, {})
    assert findings.shared == [("not healed", ["f", "g"])]


def test_what_is_planted_is_found(evidence: Evidence) -> None:
    found = planted.overlooked(evidence, MESSAGE)
    assert len(found) == len(planted.PLANTED) - 2, "all but those of the API"
    assert not any(found.values()), found


def test_what_is_planted_is_found_where_the_first_bucket_has_late_events_alone(
    tmp_path: Path,
) -> None:
    """They are of hours before it: lines were written at once when a type had been applied in the
    minute before.
    """
    world = World(tmp_path / "late")
    messages = [b"0", b"1", b"2"]
    lines = [rfc5424("lines", START_MS, message) for message in messages]
    app = world.source("app.log", b"".join(line + b"\n" for line in lines))
    starts = range(0, app.stat().st_size, len(lines[0]) + 1)
    plan = world.plan("lines", 3)
    in_turn = zip(starts, lines, messages, strict=True)
    plan.late += [
        world.row(app, start, line, START_MS, line=message) for start, line, message in in_turn
    ]
    first = {("lines", plan.hour.end_ms): plan.hour.end_ms + 1}
    with evidence_of(world, first_seen=first, may_be_late=3) as late:
        assert not check(late)
        found = planted.overlooked(late, MESSAGE)
    assert not any(found.values()), found


def test_a_checker_that_finds_nothing_is_told_of(
    evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    blind = {
        plant: (lambda *_: None, kinds, count)
        for plant, (_, kinds, count) in planted.PLANTED.items()
    }
    monkeypatch.setattr(planted, "PLANTED", blind)
    assert all(planted.overlooked(evidence, MESSAGE).values())


def test_every_checker_has_a_fault_planted_for_it() -> None:
    assert {checker for checker, *_ in planted.PLANTED.values()} == {*CHECKERS.values()}


def test_of_several_sources_the_smallest_is_judged_again_and_again(evidence: Evidence) -> None:
    app, server = evidence.told.files
    files = [
        app.model_copy(update={"source": "app"}),
        server.model_copy(update={"source": "server"}),
    ]
    kept = {**evidence.kept, "server-log/date=2026-11-26": {}}
    told = evidence.told.model_copy(update={"files": files})
    sample = smallest_sample(
        replace(evidence, told=told, kept=kept, api_types=frozenset({"lines"}))
    )
    assert [file.source for file in sample.told.files] == ["server"]
    assert sample.told.other_files == "unexpected", "or an event that nobody posted is ignored"
    assert {of.path for of in sample.told.written or ()} <= {server.path}
    assert {entry.name for entry in sample.hdfs.list(hdfs_path(told.root))} == {
        "server-log",
        "lines",
    }
    assert {path.partition("/")[0] for path in sample.kept} == {"server-log", "lines"}


@pytest.mark.parametrize("number", [b"7", b"10", b"181780", b"999"])
def test_a_number_with_another_digit_is_a_number(number: bytes) -> None:
    """Else the line is broken, not altered: its first digit was changed, and a one became a
    zero.
    """
    line = bytearray(b'demo-host kinds - kind-09 - {"number": %b, "more": 5}' % number)
    found = planted.NUMBER.search(line)
    assert found is not None
    line[found.start(1)] ^= 1
    changed = json.loads(line[line.index(b"{") :])
    assert changed["number"] != int(number) and changed["more"] == 5


def test_a_line_of_a_copy_with_another_byte_is_found(
    tmp_path: Path,
) -> None:
    """No event is altered then: the line is of no event any more, and its event of no file's
    line.
    """
    number = re.compile(rb"before it was t(.)")
    copied = Copied(tmp_path / "copied")
    copied.put(OLD, START_MS, read_in=copied.log, generation=1)
    copied.put(NEW, START_MS + 1000, read_in=copied.log, generation=2)
    with evidence_of(copied.world) as of_copy:
        assert copied.copy.stat().st_size > copied.log.stat().st_size, (
            "it is the largest, which is changed"
        )
        assert not planted.overlooked(of_copy, number)["a_line_with_another_byte"]
