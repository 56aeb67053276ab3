"""The judge objects by name to markers that lie, files and folders that no marker lists, and
buckets that changed.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.judged.world import World
from tests.unit.verify.judge.false_markers import edit
from tests.unit.verify.judge.verdicts import expected, findings, position, run

from hourmark_verify.judge.cli import judge


def test_a_bucket_without_its_marker_is_not_there(world: World) -> None:
    world.write()
    (world.folder(world.plan("lines", 1)) / "_SUCCESS").unlink()
    found = findings(run(world), "lost", "unlisted")
    assert [at for kind, _, at in found if kind == "lost"] == [
        position(world, 3),
        position(world, 5),
    ]


def test_a_file_that_the_marker_does_not_list_is_named_and_does_not_count(world: World) -> None:
    world.write()
    folder = world.folder(world.plan("lines", 0))
    (folder / "part-00009.avro").write_bytes((folder / "part-00000.avro").read_bytes())
    assert findings(run(world), "unlisted") == [("unlisted", "part-00009.avro", None)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"events": 1}, "number of events"),
        ({"late": {"2025-11-21T00:00": 7}}, "late events"),
        ({"id_sum": "00" * 8}, "sum of ids"),
        ({"type": "other"}, "type: recorded 'other'"),
        ({"hour": "2025-11-21T01"}, "hour: recorded '2025-11-21T01'"),
    ],
)
def test_a_marker_that_lies_is_named(world: World, changes: dict[str, Any], what: str) -> None:
    world.write()
    edit(world.folder(world.plan("lines", 1)) / "_SUCCESS", lambda said: said.update(changes))
    verdict = run(world)
    findings(verdict, "manifest")
    assert what in verdict["findings"][0]["detail"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "value"), [("records", 9), ("bytes", 9), ("blake2b", "00"), ("name", "part-7.avro")]
)
def test_a_marker_that_lies_about_a_file_is_named(world: World, key: str, value: object) -> None:
    world.write()
    edit(
        world.folder(world.plan("lines", 1)) / "_SUCCESS",
        lambda said: said["files"][0].update({key: value}),
    )
    assert "manifest" in {f["kind"] for f in run(world)["findings"]}


def test_a_damaged_file_is_named_and_its_lines_are_lost(world: World) -> None:
    world.write()
    file = world.folder(world.plan("lines", 1)) / "part-00000.avro"
    file.write_bytes(file.read_bytes()[:-20])
    findings(run(world), "manifest", "lost")


def take_snapshot(world: World) -> Path:
    taken = world.sources.parent / "snapshot.json"
    assert (
        CliRunner()
        .invoke(judge, ["snapshot", expected(world), str(taken)], catch_exceptions=False)
        .exit_code
        == 0
    )
    return taken


def test_a_bucket_closed_after_the_snapshot_is_no_change(world: World) -> None:
    newest = world.plans.pop()
    world.write()
    taken = take_snapshot(world)
    world.write_bucket(newest)
    assert run(world, "--snapshot", str(taken))["content"]


@pytest.mark.slow
@pytest.mark.parametrize("change", ["rewritten", "vanished", "added", "marker"])
def test_a_bucket_changed_after_closing_is_named(world: World, change: str) -> None:
    world.write()
    taken = take_snapshot(world)
    folder = world.folder(world.plan("server-log", 2))
    other = world.folder(world.plan("server-log", 1)) / "part-00000.avro"
    if change == "rewritten":  # with the same events, and a marker that fits them
        shutil.rmtree(other.parent)
        world.write_bucket(world.plan("server-log", 1))
    elif change == "vanished":
        (folder / "_SUCCESS").unlink()
    elif change == "added":
        (folder / "part-00000.avro").write_bytes(other.read_bytes())
    else:
        (folder / "_SUCCESS").write_bytes((folder / "_SUCCESS").read_bytes() + b"\n")
    minute = "minute=01" if change == "rewritten" else "minute=02"
    verdict = run(world, "--snapshot", str(taken))
    changed = {Path(f["path"]).name for f in verdict["findings"] if f["kind"] == "changed"}
    assert (verdict["content"], changed) == (False, {minute})


def test_a_bucket_that_was_replaced_by_its_equal_is_named(world: World) -> None:
    world.write()
    taken = take_snapshot(world)
    folder = world.folder(world.plan("lines", 0))
    content = {file: file.read_bytes() for file in folder.iterdir()}
    shutil.rmtree(folder)
    folder.mkdir()
    for file, of in content.items():
        file.write_bytes(of)
    verdict = run(world, "--snapshot", str(taken))
    assert findings(verdict, "changed")[0][:2] == ("changed", "minute=00")


def test_a_snapshot_of_nothing_is_no_comparison(world: World, tmp_path: Path) -> None:
    world.write()
    (tmp_path / "empty").write_text("{}")
    assert (
        "nothing was compared"
        in run(world, "--snapshot", str(tmp_path / "empty"))["findings"][0]["detail"]
    )


def add_parquet(world: World) -> Path:
    """A Parquet file that the marker of a bucket lists. The judge compares its bytes only."""
    world.write()
    folder = world.folder(world.plan("lines", 0))
    (folder / "_parquet").mkdir()
    file = folder / "_parquet" / "part-00000.parquet"
    file.write_bytes(b"PAR1 PAR1")

    def add(marker: dict[str, Any]) -> None:
        (avro,) = marker["files"]
        marker["parquet"] = [
            {
                "name": "_parquet/part-00000.parquet",
                "rows_of": avro["name"],
                "records": avro["records"],
                "bytes": 9,
                "blake2b": hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest(),
                "origin_hour": marker["hour"],
            }
        ]

    edit(folder / "_SUCCESS", add)
    world.chain()
    return file


def test_parquet_files_that_the_marker_lists_are_part_of_the_bucket(world: World) -> None:
    add_parquet(world)
    assert run(world)["findings"] == []


def test_a_parquet_file_that_changed_or_is_missing_is_named(world: World) -> None:
    file = add_parquet(world)
    file.write_bytes(b"PAR1 par1")
    assert findings(run(world), "manifest") == [("manifest", "part-00000.parquet", None)]
    file.unlink()
    assert findings(run(world), "manifest") == [("manifest", "part-00000.parquet", None)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("records", 9, "have 9 events"),
        ("rows_of", "part-00007.avro", "events, but that file has 0"),
        ("origin_hour", "2025-11-21T00:07", "so its name should be _parquet/late-00000.parquet"),
    ],
)
def test_a_marker_that_lies_about_a_parquet_file_is_named(
    world: World, key: str, value: object, what: str
) -> None:
    marker = add_parquet(world).parents[1] / "_SUCCESS"
    edit(marker, lambda said: said["parquet"][0].update({key: value}))
    world.chain()
    assert any(what in of["detail"] for of in run(world)["findings"])
