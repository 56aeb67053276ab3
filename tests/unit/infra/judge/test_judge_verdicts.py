"""The judge is content with a clean tree, and objects by name to every fault planted in one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.judged.webhdfs_server import serve
from tests.support.judged.world import MINUTE, START_MS, World, rfc5424
from tests.unit.infra.judge.verdicts import findings, position, run

from hourmark_infra.judge.cli import judge


def test_a_clean_tree_passes_and_is_counted(world: World, webhdfs: str) -> None:
    world.write()
    verdict = run(world, webhdfs)
    assert verdict["findings"] == []
    assert verdict["digests_checked"]
    counts = {
        name: (c["expected"], c["in_buckets"], c["late"], c["dead_letters"], c["lost"]) for name, c in verdict["types"].items()
    }
    assert counts == {
        "lines": (3, 3, 0, 0, 0),
        "track-played": (4, 3, 0, 1, 0),
        "server-log": (2, 2, 1, 0, 0),
        "dead-letters": (0, 2, 0, 0, 0),
        "(none)": (1, 0, 0, 1, 0),
    }
    assert [(f["lines"], f["in_buckets"], f["dead_letters"]) for f in verdict["files"]] == [(8, 6, 2), (2, 2, 0)]
    assert verdict["types"]["server-log"]["grades"] == {"proved": 3}
    assert verdict["types"]["server-log"]["buckets_with_events"] == 2


def test_a_dropped_event_is_lost(world: World, webhdfs: str) -> None:
    world.plan("lines", 0).rows.pop()
    world.write()
    verdict = run(world, webhdfs)
    assert findings(verdict, "lost") == [("lost", "app.log", position(world, 1))]
    assert verdict["types"]["lines"]["lost"] == 1


def test_an_event_twice_in_a_bucket_is_doubled(world: World, webhdfs: str) -> None:
    rows = world.plan("track-played", 0).rows
    rows.append(rows[0])
    world.write()
    assert findings(run(world, webhdfs), "doubled") == [("doubled", "app.log", 0)]


def test_an_event_in_two_buckets_is_doubled(world: World, webhdfs: str) -> None:
    world.plan("track-played", 1).late.append(world.plan("track-played", 0).rows[0])
    world.write()
    assert findings(run(world, webhdfs), "doubled") == [("doubled", "app.log", 0)]


def test_a_line_in_a_bucket_and_in_dead_letters_is_doubled(world: World, webhdfs: str) -> None:
    app = world.sources / "app.log"
    line = app.read_bytes().split(b"\n")[0]
    world.plan("dead-letters", 1).rows.append(world.dead_letter(app, 0, line, START_MS + MINUTE))
    world.write()
    verdict = run(world, webhdfs)
    assert ("doubled", "app.log", 0) in findings(verdict, "doubled", "altered")
    assert "dead-letters/date=2025-11-21/hour=00/minute=01" in verdict["findings"][0]["detail"]


def test_an_id_of_two_events_is_doubled_although_each_line_is_there_once(world: World, webhdfs: str) -> None:
    rows = world.plan("server-log", 1).rows + world.plan("server-log", 3).late
    rows[1]["event_id"] = rows[0]["event_id"]
    rows[1]["event_time"] = rows[0]["event_time"]
    world.write()
    findings(run(world, webhdfs, host_id=None), "doubled")


def test_one_byte_of_a_text_payload_is_altered(world: World, webhdfs: str) -> None:
    row = world.plan("lines", 0).rows[0]
    row["line"] = row["line"].replace(b"\xff", b"\xfe")
    world.write()
    verdict = run(world, webhdfs)
    assert findings(verdict, "altered") == [("altered", "app.log", position(world, 1))]
    assert "field line is b'line \\xfe" in verdict["findings"][0]["detail"]


def test_one_field_of_a_json_payload_is_altered(world: World, webhdfs: str) -> None:
    world.plan("track-played", 0).rows[1]["ms"] += 1
    world.write()
    assert findings(run(world, webhdfs), "altered") == [("altered", "app.log", position(world, 2))]


def test_the_raw_bytes_of_a_dead_letter_are_altered(world: World, webhdfs: str) -> None:
    world.plan("dead-letters", 1).rows[0]["raw"] += b"\n"
    world.write()
    assert findings(run(world, webhdfs), "altered") == [("altered", "app.log", position(world, 6))]


def test_an_altered_position_is_no_line(world: World, webhdfs: str) -> None:
    world.plan("track-played", 0).rows[0]["position"] = 1
    world.write()
    found = findings(run(world, webhdfs), "lost", "unexpected")
    assert found == [("lost", "app.log", 0), ("unexpected", "app.log", 1)]


def test_an_altered_host_is_named(world: World, webhdfs: str) -> None:
    world.plan("track-played", 0).rows[0]["host"] = "hosT"
    world.write()
    assert findings(run(world, webhdfs), "altered") == [("altered", "app.log", 0)]


def test_an_altered_event_time_is_named_twice_by_id_and_line(world: World, webhdfs: str) -> None:
    world.plan("track-played", 0).rows[0]["event_time"] += 1
    world.write()
    assert findings(run(world, webhdfs), "altered") == [("altered", "app.log", 0)]


@pytest.mark.parametrize("at", [0, 6, 8, 15])
def test_an_altered_byte_of_an_event_id_is_named(world: World, webhdfs: str, at: int) -> None:
    row = world.plan("track-played", 0).rows[0]
    changed = bytearray(row["event_id"])
    changed[at] ^= 0x81
    row["event_id"] = bytes(changed)
    world.write()
    assert findings(run(world, webhdfs), "altered") == [("altered", "app.log", 0)]


def test_an_event_of_another_type_than_its_line_says(world: World, webhdfs: str) -> None:
    row = world.plan("lines", 0).rows.pop()
    world.plan("server-log", 0).rows.append(row)
    world.write()
    assert findings(run(world, webhdfs), "altered") == [("altered", "app.log", position(world, 1))]


def test_an_event_in_the_wrong_hour_is_misplaced(world: World, webhdfs: str) -> None:
    row = world.plan("track-played", 0).rows.pop(0)
    world.plan("track-played", 1).rows.append(row)
    world.write()
    assert ("misplaced", "app.log", 0) in findings(run(world, webhdfs), "misplaced", "manifest")


def test_a_late_event_that_is_on_time_is_misplaced(world: World, webhdfs: str) -> None:
    plan = world.plan("track-played", 0)
    plan.late.append(plan.rows.pop(0))
    world.write()
    assert ("misplaced", "app.log", 0) in findings(run(world, webhdfs), "misplaced", "manifest")


def test_an_unterminated_line_must_not_be_there(world: World, webhdfs: str) -> None:
    line = rfc5424("lines", START_MS, b"half")
    app = world.sources / "app.log"
    world.plan("lines", 0).rows.append(world.row(app, position(world, 8), line, START_MS, line=b"half"))
    world.write()
    assert findings(run(world, webhdfs), "unexpected") == [("unexpected", "app.log", position(world, 8))]


def test_lines_after_a_recorded_size_are_ignored_both_ways(world: World, webhdfs: str) -> None:
    server = world.sources / "kafka.log"
    server.write_bytes(server.read_bytes() + b" line\nand one that was not delivered\n")
    world.plan("server-log", 1).rows.append(world.row(server, 20, b"later line", START_MS + MINUTE, line=b"later line"))
    world.write()
    verdict = run(world, webhdfs)
    assert verdict["content"]
    assert verdict["beyond"] == 1


def test_events_of_files_that_are_not_listed_are_unexpected_unless_told_otherwise(world: World, webhdfs: str) -> None:
    world.write()
    told = world.expectations(webhdfs)["files"][:1]
    findings(run(world, webhdfs, files=told), "unexpected")
    verdict = run(world, webhdfs, files=told, other_files="ignore")
    assert (verdict["content"], verdict["others"]) == (True, 2)


def test_a_rotated_file_is_found_by_its_inode(world: World, webhdfs: str) -> None:
    app = world.sources / "app.log"
    world.write()
    app.rename(world.sources / "app.log.1")
    world.files[0]["path"] += "*"
    world.files.append({"path": str(world.sources / "app.log.1")})  # named twice, judged once
    assert run(world, webhdfs)["content"]


def test_nothing_compared_is_not_content(world: World, webhdfs: str, tmp_path: Path) -> None:
    (tmp_path / "empty.log").touch()
    verdict = run(world, webhdfs, files=[{"path": str(tmp_path / "empty.log")}], written=None)
    assert (verdict["content"], verdict["compared"], verdict["findings"]) == (False, 0, [])


def test_a_file_that_was_cut_short_with_its_events_is_not_what_its_writer_wrote(world: World, webhdfs: str) -> None:
    app = world.sources / "app.log"
    cut = position(world, 5)
    app.write_bytes(app.read_bytes()[:cut])
    world.plan("lines", 1).rows = [row for row in world.plan("lines", 1).rows if row["position"] < cut]
    world.plan("dead-letters", 1).rows = []
    world.write()
    assert {name for _, name, _ in findings(run(world, webhdfs), "source")} == {"app.log"}


def test_what_lies_past_a_recorded_size_is_counted_and_printed(world: World, webhdfs: str) -> None:
    server = world.sources / "kafka.log"
    server.write_bytes(server.read_bytes() + b" line\n")
    world.plan("server-log", 1).rows.append(world.row(server, 20, b"later line", START_MS + MINUTE, line=b"later line"))
    world.write()
    told = world.sources.parent / "expectations.json"
    told.write_text(json.dumps(world.expectations(webhdfs)))
    assert "1 past the recorded size" in CliRunner().invoke(judge, ["check", str(told)]).stdout


def over_long(world: World, *spans: tuple[int, int]) -> None:
    """A line of 25 bytes where 10 are allowed, with dead letters of these pieces of it."""
    line = b"x" * 10 + b"y" * 10 + b"z" * 5
    long = world.source("long.log", line + b"\n", form="free")
    world.told["line_bytes_max"] = 10
    for start, end in spans:
        row = world.dead_letter(long, start, line[start:end], START_MS + MINUTE + start, "line_too_long")
        world.plan("dead-letters", 1).rows.append(row)
    world.write()


@pytest.fixture
def only_long(tmp_path: Path) -> World:
    return World(tmp_path)


def judged(world: World, *spans: tuple[int, int]) -> list[tuple[str, int | None]]:
    """Kinds and positions of what is found."""
    over_long(world, *spans)
    with serve(world.hdfs) as webhdfs:
        return [(f["kind"], f["position"]) for f in run(world, webhdfs)["findings"]]


def test_pieces_of_an_over_long_line_make_it_up(only_long: World) -> None:
    assert judged(only_long, (0, 10), (10, 20), (20, 25)) == []


def test_a_piece_that_is_missing_is_lost(only_long: World) -> None:
    assert judged(only_long, (0, 10), (20, 25)) == [("lost", 10)]


def test_a_piece_of_another_length_is_altered_or_of_no_line(only_long: World) -> None:
    assert judged(only_long, (0, 10), (9, 20), (20, 25)) == [("lost", 10), ("unexpected", 9)]


def test_a_piece_is_there_once(only_long: World) -> None:
    assert judged(only_long, (0, 10), (10, 20), (10, 20), (20, 25)) == [("doubled", 10)]


def test_many_findings_are_counted_and_the_first_twenty_named(world: World, webhdfs: str) -> None:
    world.source("many.log", b"line\n" * 1000, form="free", type="server-log")
    world.write()
    verdict = run(world, webhdfs)
    assert verdict["lost"] == 1000
    assert len(findings(verdict, "lost")) == 20


def test_what_is_found_is_printed_for_people(world: World, webhdfs: str) -> None:
    world.plan("lines", 0).rows.pop()
    world.write()
    told = world.sources.parent / "expectations.json"
    told.write_text(json.dumps(world.expectations(webhdfs)))
    result = CliRunner().invoke(judge, ["check", str(told)])
    assert result.exit_code == 1
    assert f"lost: {world.sources}/app.log at byte {position(world, 1)}" in result.stdout
    assert "NOT content: 1 lost, 0 doubled" in result.stdout


def test_a_wrong_expectation_is_wrong_use_and_an_unreachable_server_no_verdict(
    world: World, webhdfs: str, tmp_path: Path
) -> None:
    told = tmp_path / "told.json"
    told.write_text(json.dumps(world.expectations("http://127.0.0.1:9")))
    assert CliRunner().invoke(judge, ["check", str(told)]).exit_code == 1
    told.write_text(json.dumps(world.expectations(webhdfs, types={"lines": {"content": "json", "field": "x"}})))
    assert CliRunner().invoke(judge, ["check", str(told)]).exit_code == 2
