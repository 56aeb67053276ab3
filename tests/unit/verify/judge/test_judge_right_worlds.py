"""Right worlds that are not plain: several versions of a type, several hosts, an over-long line
that has no end yet.

Beside each stand false ones that poll alike.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.judged.world import HOST_ID, MINUTE, START_MS, Row, World, rfc5424
from tests.unit.verify.judge.test_judge_worlds import verdict

from hourmark.records.event_id import LineIds
from hourmark.records.ranges import Part
from hourmark_verify.judge.expectations import Expectations
from hourmark_verify.judge.report import STORED_FINDINGS_MAX, JudgeReport
from hourmark_verify.judge.sources import open_sources

LIMIT = 10
OTHER_ID = "fedcba9876543210fedcba9876543210"
ADDED: dict[str, Any] = {"name": "country", "type": ["null", "string"], "default": None}


def found(world: World) -> list[tuple[str, int | None]]:
    """What the judge finds: kinds and positions."""
    world.write()
    report = verdict(world)
    assert len(report.findings) < STORED_FINDINGS_MAX
    return [(finding.kind.value, finding.position) for finding in report.findings]


def send(
    world: World,
    path: Path,
    span: tuple[int, int],
    *,
    part: Part = Part.LINES,
    host_id: str | None = None,
) -> list[tuple[str, Row]]:
    """Parse a range and put what it makes into buckets."""
    sent = world.parse(path, *span, START_MS + 2 * MINUTE, part, host_id)
    for event_type, row in sent:
        world.plan_at(event_type, row["event_time"]).rows.append(row)
    return sent


# Versions of a type.
def track(minute: int, **more: object) -> bytes:
    """A line of track-played, with its LF."""
    message = json.dumps({"track": "t", "ms": minute, **more}).encode()
    return rfc5424("track-played", START_MS + minute * MINUTE, message) + b"\n"


@pytest.fixture
def versions(tmp_path: Path) -> tuple[World, list[tuple[str, Row]], list[tuple[str, Row]]]:
    """Two lines sent under version 1, the second of which has a field too many; two under version
    2, which has that field.
    """
    world = World(tmp_path)
    lines = [track(0), track(1, country="SE"), track(1), track(1, country="SE")]
    path = world.source("app.log", b"".join(lines))
    half = len(lines[0]) + len(lines[1])
    before = send(world, path, (0, half))
    world.revise("track-played", ADDED)
    return world, before, send(world, path, (half, half + len(lines[2]) + len(lines[3])))


Versions = tuple[World, list[tuple[str, Row]], list[tuple[str, Row]]]


def test_hours_of_both_versions_of_a_type_are_right(versions: Versions) -> None:
    world, before, after = versions
    assert [event_type for event_type, _ in before + after] == [
        "track-played",
        "dead-letters",
        "track-played",
        "track-played",
    ]
    assert found(world) == []


def test_an_hour_in_which_a_version_was_applied_has_files_of_both(tmp_path: Path) -> None:
    world = World(tmp_path)
    path = world.source("app.log", track(0) * 2)
    send(world, path, (0, len(track(0))))
    world.revise("track-played", ADDED)
    send(world, path, (len(track(0)), 2 * len(track(0))))
    assert found(world) == []
    marker = json.loads((world.folder(world.plan("track-played", 0)) / "_SUCCESS").read_bytes())
    assert len({file["schema_id"] for file in marker["files"]}) == 2


def test_a_dead_letter_that_names_the_later_version_is_altered(versions: Versions) -> None:
    world, before, _ = versions
    before[1][1]["rules"] = max(world.expectations()["rules"])
    assert ("altered", before[1][1]["position"]) in found(world)


@pytest.mark.parametrize("value", [None, "DE"])
def test_a_field_of_the_later_version_is_held_against_its_line(
    versions: Versions, value: str | None
) -> None:
    world, _, after = versions
    after[1][1]["country"] = value
    assert found(world) == [("altered", after[1][1]["position"])]


def test_an_event_of_the_earlier_version_is_altered_where_its_line_has_a_field_too_many(
    versions: Versions,
) -> None:
    world, _, after = versions
    del after[1][1]["country"]
    assert found(world) == [("altered", after[1][1]["position"])]


def test_a_version_that_nobody_declared_is_altered(versions: Versions) -> None:
    world, _, _ = versions
    types = world.expectations()["types"]
    types["track-played"]["fields"].pop()
    world.told = {"types": types}
    assert len(found(world)) == 2


# Hosts.
def two_hosts(folder: Path) -> tuple[World, list[tuple[str, Row]], list[tuple[str, Row]]]:
    """A file of each of two hosts, whose lines name no host; each has a dead letter too."""
    world = World(folder)
    content = rfc5424("lines", START_MS, b"m").replace(b" host app", b" - app") + b"\nbroken\n"
    first = world.source("first.log", content)
    second = world.source("second.log", content, host="second", host_id=OTHER_ID)
    return world, send(world, first, (0, len(content))), send(world, second, (0, len(content)))


def test_files_of_two_hosts_are_right(tmp_path: Path) -> None:
    world, first, second = two_hosts(tmp_path)
    assert [row["host"] for _, row in first + second] == ["host", "host", "second", "second"]
    assert found(world) == []


@pytest.mark.parametrize("number", [0, 1])
def test_another_hosts_name_or_id_is_altered(tmp_path: Path, number: int) -> None:
    world, first, second = two_hosts(tmp_path / "name")
    first[number][1]["host"] = "second"
    assert found(world) == [("altered", first[number][1]["position"])]
    world, first, second = two_hosts(tmp_path / "id")
    row = second[number][1]
    line = row.get("raw", rfc5424("lines", START_MS, b"m").replace(b" host app", b" - app"))
    made = LineIds(HOST_ID, row["file"]["id"], 0).make(row["event_time"], row["position"], line)
    row["event_id"] = bytes(made)
    assert found(world) == [("altered", row["position"])]


def changed_host(folder: Path) -> tuple[World, list[tuple[str, Row]]]:
    """A file whose first line was sent by a host with one id, and the others by one with
    another.
    """
    world = World(folder)
    path = world.source("app.log", track(0) + b"broken\n" + track(1), host_id=[HOST_ID, OTHER_ID])
    cuts = (0, len(track(0)), len(track(0)) + 7, path.stat().st_size)
    ids = (HOST_ID, OTHER_ID, OTHER_ID)
    return world, [
        row
        for n, host_id in enumerate(ids)
        for row in send(world, path, (cuts[n], cuts[n + 1]), host_id=host_id)
    ]


def test_a_file_of_a_host_whose_id_changed_is_right(tmp_path: Path) -> None:
    assert found(changed_host(tmp_path)[0]) == []


def test_a_line_that_was_sent_under_both_ids_is_doubled(tmp_path: Path) -> None:
    world, _ = changed_host(tmp_path)
    send(world, world.sources / "app.log", (0, len(track(0))), host_id=OTHER_ID)
    assert found(world) == [("doubled", 0)]


def test_a_range_of_one_id_holds_no_event_of_the_other(tmp_path: Path) -> None:
    world, sent = changed_host(tmp_path)
    dead = sent[1][1]
    dead["event_id"] = bytes(
        LineIds(HOST_ID, dead["file"]["id"], 0).make(
            dead["event_time"], dead["position"], b"broken"
        )
    )
    assert found(world) == [("altered", dead["position"])]


# A last line that is over-long, and has no LF yet.
def tailed(folder: Path, length: int, *pieces: int) -> World:
    """A file with one line and a tail of this length, of which these pieces were sent, by
    number.
    """
    world = World(folder)
    world.told["line_bytes_max"] = LIMIT
    path = world.source(
        "long.log", b"a line\n" + bytes(range(97, 97 + 26))[:length], form="free", type="server-log"
    )
    send(world, path, (0, 7))
    for number in pieces:
        send(world, path, (7 + number * LIMIT, 7 + (number + 1) * LIMIT), part=Part.CHUNK)
    return world


@pytest.mark.parametrize(
    ("length", "pieces"), [(9, []), (10, []), (11, [0]), (19, [0]), (20, [0, 1]), (25, [0, 1])]
)
def test_of_an_unterminated_tail_each_full_piece_is_there_once_it_is_over_long(
    tmp_path: Path, length: int, pieces: list[int]
) -> None:
    assert found(tailed(tmp_path, length, *pieces)) == []


def test_pieces_of_an_unterminated_tail_that_are_missing_doubled_or_short_are_objected_to(
    tmp_path: Path,
) -> None:
    assert found(tailed(tmp_path / "m", 25, 0)) == [("lost", 17)]
    assert found(tailed(tmp_path / "d", 25, 0, 1, 1)) == [("doubled", 17)]
    world = tailed(tmp_path / "s", 25, 0, 1)
    send(world, world.sources / "long.log", (27, 32), part=Part.CHUNK)
    assert found(world) == [("unexpected", 27)]
    assert found(tailed(tmp_path / "n", 10, 0)) == [("unexpected", 7)]


def test_a_tail_that_is_terminated_meanwhile_goes_on_where_its_pieces_end(tmp_path: Path) -> None:
    world = tailed(tmp_path, 25)
    told = Expectations.model_validate(world.expectations())
    source = next(iter(open_sources(told, JudgeReport()).values()))
    with Path(source.name).open("ab") as file:
        file.write(b"z\nnext\n")
    spans = [
        (line.start, line.content, line.part)
        for at in (7, 17, 27, 34)
        if (line := source.line_at(at)) is not None
    ]
    tail = bytes(range(97, 97 + 25)) + b"z"
    assert spans == [
        (7, tail[:10], "chunk"),
        (17, tail[10:20], "chunk"),
        (27, tail[20:], "last-chunk"),
        (34, b"next", "lines"),
    ]
    source.close()


def test_an_over_long_tail_at_the_real_limit_is_right(tmp_path: Path) -> None:
    limit = 4 << 20
    world = World(tmp_path)
    path = world.source("long.log", b"x" * (limit + 1), form="free", type="server-log")
    send(world, path, (0, limit), part=Part.CHUNK)
    assert found(world) == []
