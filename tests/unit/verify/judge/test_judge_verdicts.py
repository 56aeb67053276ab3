"""The judge is content with a clean tree, and objects by name to every fault planted in one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.judged.webhdfs_server import serve
from tests.support.judged.world import MINUTE, START_MS, World, rfc5424
from tests.unit.verify.judge.verdicts import expected, findings, found, position, run

from hourmark_verify.judge.cli import judge
from hourmark_verify.judge.expectations import Expectations


def test_a_clean_tree_passes_and_is_counted(world: World) -> None:
    world.write()
    verdict = run(world)
    assert verdict["findings"] == []
    assert verdict["digests_checked"]
    counts = {
        name: (c["expected"], c["in_buckets"], c["late"], c["dead_letters"], c["lost"])
        for name, c in verdict["types"].items()
    }
    assert counts == {
        "lines": (3, 3, 0, 0, 0),
        "track-played": (4, 3, 0, 1, 0),
        "server-log": (2, 2, 1, 0, 0),
        "dead-letters": (0, 1, 0, 0, 0),
    }
    counts_of_files = [
        (f["lines"], f["in_buckets"], f["dead_letters"], f["blanks"]) for f in verdict["files"]
    ]
    assert counts_of_files == [(9, 6, 1, 2), (2, 2, 0, 0)]
    assert verdict["types"]["server-log"]["grades"] == {"proved": 3}
    assert verdict["types"]["server-log"]["buckets_with_events"] == 2


def test_a_dropped_event_is_lost(world: World) -> None:
    world.plan("lines", 0).rows.pop()
    world.write()
    verdict = run(world)
    assert findings(verdict, "lost") == [("lost", "app.log", position(world, 1))]
    assert verdict["types"]["lines"]["lost"] == 1


@pytest.mark.parametrize("line", [b"", b"\r"])
def test_a_record_of_a_blank_line_is_unexpected(world: World, line: bytes) -> None:
    app, content = world.sources / "app.log", (world.sources / "app.log").read_bytes()
    at = content.index(b"\n\n\r\n") + 1 + len(line)
    world.plan("dead-letters", 1).rows.append(
        world.dead_letter(app, at, line, START_MS + MINUTE + 1, "empty_line")
    )
    assert found(world) == [("unexpected", "app.log", at)]


def test_blank_lines_are_demanded_where_all_rules_are_of_the_first_parser(world: World) -> None:
    world.told["blank_lines"] = "read"
    at = (world.sources / "app.log").read_bytes().index(b"\n\n\r\n") + 1
    assert found(world) == [("lost", "app.log", at), ("lost", "app.log", at + 1)]


def test_an_event_twice_in_a_bucket_is_doubled(world: World) -> None:
    rows = world.plan("track-played", 0).rows
    rows.append(rows[0])
    assert found(world) == [("doubled", "app.log", 0)]


def test_an_event_in_two_buckets_is_doubled(world: World) -> None:
    world.plan("track-played", 1).late.append(world.plan("track-played", 0).rows[0])
    assert found(world) == [("doubled", "app.log", 0)]


def test_a_line_in_a_bucket_and_in_dead_letters_is_doubled(world: World) -> None:
    app = world.sources / "app.log"
    line = app.read_bytes().split(b"\n")[0]
    world.plan("dead-letters", 1).rows.append(world.dead_letter(app, 0, line, START_MS + MINUTE))
    world.write()
    verdict = run(world)
    assert ("doubled", "app.log", 0) in findings(verdict, "doubled", "altered")
    assert "dead-letters/date=2025-11-21/hour=00/minute=01" in verdict["findings"][0]["detail"]


def test_an_id_of_two_events_is_doubled_although_each_line_is_there_once(world: World) -> None:
    rows = world.plan("server-log", 1).rows + world.plan("server-log", 3).late
    rows[1]["event_id"] = rows[0]["event_id"]
    rows[1]["event_time"] = rows[0]["event_time"]
    found(world, "doubled", host_id=None)


def test_one_byte_of_a_text_payload_is_altered(world: World) -> None:
    row = world.plan("lines", 0).rows[0]
    row["line"] = row["line"].replace(b"\xff", b"\xfe")
    world.write()
    verdict = run(world)
    assert findings(verdict, "altered") == [("altered", "app.log", position(world, 1))]
    assert "field line is b'line \\xfe" in verdict["findings"][0]["detail"]


def test_an_altered_position_is_no_line(world: World) -> None:
    world.plan("track-played", 0).rows[0]["position"] = 1
    assert found(world) == [("lost", "app.log", 0), ("unexpected", "app.log", 1)]


@pytest.mark.parametrize(
    ("event_type", "row", "name", "more", "line"),
    [
        ("track-played", 0, "host", "T", 0),
        ("track-played", 0, "event_time", 1, 0),
        ("track-played", 1, "ms", 1, 2),
        ("dead-letters", 0, "raw", b"\n", 6),
    ],
)
def test_an_altered_field_is_named_with_its_line(
    world: World, event_type: str, row: int, name: str, more: Any, line: int
) -> None:
    plan = next(plan for plan in world.plans if plan.event_type == event_type)
    plan.rows[row][name] += more
    assert found(world) == [("altered", "app.log", position(world, line))]


@pytest.mark.parametrize("at", [0, 6, 8, 15])
def test_an_altered_byte_of_an_event_id_is_named(world: World, at: int) -> None:
    row = world.plan("track-played", 0).rows[0]
    changed = bytearray(row["event_id"])
    changed[at] ^= 0x81
    row["event_id"] = bytes(changed)
    assert found(world) == [("altered", "app.log", 0)]


def test_an_event_of_another_type_than_its_line_says(world: World) -> None:
    row = world.plan("lines", 0).rows.pop()
    world.plan("server-log", 0).rows.append(row)
    assert found(world) == [("altered", "app.log", position(world, 1))]


@pytest.mark.parametrize(
    ("minute", "held"),
    [(1, "rows"), (0, "late")],
    ids=["in the wrong hour", "late, though on time"],
)
def test_an_event_that_stands_elsewhere_is_misplaced(world: World, minute: int, held: str) -> None:
    getattr(world.plan("track-played", minute), held).append(
        world.plan("track-played", 0).rows.pop(0)
    )
    assert ("misplaced", "app.log", 0) in found(world, "misplaced", "manifest")


def test_an_unterminated_line_must_not_be_there(world: World) -> None:
    line = rfc5424("lines", START_MS, b"half")
    app = world.sources / "app.log"
    world.plan("lines", 0).rows.append(
        world.row(app, position(world, 8), line, START_MS, line=b"half")
    )
    assert found(world) == [("unexpected", "app.log", position(world, 8))]


def test_what_lies_past_a_recorded_size_is_ignored_both_ways_counted_and_printed(
    world: World,
) -> None:
    server = world.sources / "kafka.log"
    server.write_bytes(server.read_bytes() + b" line\nand one that was not delivered\n")
    world.plan("server-log", 1).rows.append(
        world.row(server, 20, b"later line", START_MS + MINUTE, line=b"later line")
    )
    world.write()
    verdict = run(world)
    assert (verdict["content"], verdict["beyond"]) == (True, 1)
    assert (
        "1 past the recorded size" in CliRunner().invoke(judge, ["check", expected(world)]).stdout
    )


def test_events_of_files_that_are_not_listed_are_unexpected_unless_told_otherwise(
    world: World,
) -> None:
    world.write()
    told = world.expectations()["files"][:1]
    findings(run(world, files=told), "unexpected")
    verdict = run(world, files=told, other_files="ignore")
    assert (verdict["content"], verdict["others"]) == (True, 2)


def test_a_rotated_file_is_found_by_its_inode(world: World) -> None:
    app = world.sources / "app.log"
    world.write()
    app.rename(world.sources / "app.log.1")
    world.files[0]["path"] += "*"
    world.files.append({"path": str(world.sources / "app.log.1")})  # named twice, judged once
    assert run(world)["content"]


def test_nothing_compared_is_not_content(world: World, tmp_path: Path) -> None:
    (tmp_path / "empty.log").touch()
    verdict = run(world, files=[{"path": str(tmp_path / "empty.log")}], written=None)
    assert (verdict["content"], verdict["compared"], verdict["findings"]) == (False, 0, [])


def test_a_file_that_was_cut_short_with_its_events_is_not_what_its_writer_wrote(
    world: World,
) -> None:
    app = world.sources / "app.log"
    cut = position(world, 5)
    app.write_bytes(app.read_bytes()[:cut])
    world.plan("lines", 1).rows = [
        row for row in world.plan("lines", 1).rows if row["position"] < cut
    ]
    world.plan("dead-letters", 1).rows = []
    assert {name for _, name, _ in found(world, "source")} == {"app.log"}


@pytest.mark.parametrize(
    ("spans", "objections"),
    [
        ([(0, 10), (10, 20), (20, 25)], []),
        ([(0, 10), (20, 25)], [("lost", 10)]),
        ([(0, 10), (9, 20), (20, 25)], [("lost", 10), ("unexpected", 9)]),
        ([(0, 10), (10, 20), (10, 20), (20, 25)], [("doubled", 10)]),
    ],
    ids=["they make it up", "one is missing", "one has another length", "one is there twice"],
)
def test_pieces_of_an_over_long_line(
    tmp_path: Path, spans: list[tuple[int, int]], objections: list[tuple[str, int]]
) -> None:
    """A line of 25 bytes where 10 are allowed, with dead letters of these pieces of it."""
    world, line = World(tmp_path), b"x" * 10 + b"y" * 10 + b"z" * 5
    long = world.source("long.log", line + b"\n", form="free")
    world.told["line_bytes_max"] = 10
    for start, end in spans:
        row = world.dead_letter(
            long, start, line[start:end], START_MS + MINUTE + start, "line_too_long"
        )
        world.plan("dead-letters", 1).rows.append(row)
    with serve(world.hdfs) as world.webhdfs:
        assert [(kind, at) for kind, _, at in found(world)] == objections


def test_many_findings_are_counted_and_the_first_twenty_named(world: World) -> None:
    world.source("many.log", b"line\n" * 1000, form="free", type="server-log")
    world.write()
    verdict = run(world)
    assert verdict["lost"] == 1000
    assert len(findings(verdict, "lost")) == 20


def test_what_is_found_is_printed_for_people(world: World) -> None:
    world.plan("lines", 0).rows.pop()
    world.write()
    result = CliRunner().invoke(judge, ["check", expected(world)])
    assert result.exit_code == 1
    assert f"lost: {world.sources}/app.log at byte {position(world, 1)}" in result.stdout
    assert "NOT content: 1 lost, 0 doubled" in result.stdout


def test_a_wrong_expectation_is_wrong_use_and_an_unreachable_server_no_verdict(
    world: World,
) -> None:
    for code, changes in (
        (1, {"webhdfs": "http://127.0.0.1:9"}),
        (2, {"types": {"lines": {"content": "json", "field": "x"}}}),
    ):
        assert CliRunner().invoke(judge, ["check", expected(world, **changes)]).exit_code == code


def test_the_example_in_the_help_is_accepted() -> None:
    shown = CliRunner().invoke(judge, ["check", "--help"]).stdout
    example, _ = json.JSONDecoder().raw_decode(shown[shown.index('{"webhdfs"') :])
    assert [file.form for file in Expectations.model_validate(example).files] == ["rfc5424"]
