"""tools/verify_bucket.py finds each fault that is planted in a copy of closed buckets, and nothing
in one as it was closed.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.buckets import EARLIER, HOUR, LATER, TYPE, Plan, make_event, usual_plan
from tools import verify_bucket as tool

from hourmark.records.hours import Hour
from hourmark.records.manifest import MARKER, Grade, Manifest, PreviousMarker
from hourmark_etl.buckets.expiry import plan_expiry, remove_day
from hourmark_etl.buckets.verify import BucketFault, verify_bucket
from hourmark_etl.storage import LocalDisk

LAST = LATER.next()


def close_all(root: Path, *, change: Callable[[Plan], object] = lambda plan: None) -> Path:
    """Four buckets, the last one empty; `change` is made to the second before it is closed.

    Returns the type's folder.
    """
    storage = LocalDisk(root)
    Plan(
        storage, EARLIER, {"part-00000.avro": [make_event(EARLIER, n) for n in range(5, 9)]}
    ).close()
    plan = usual_plan(storage)
    change(plan)
    plan.close()
    Plan(storage, LATER, {"part-00000.avro": [make_event(LATER, n) for n in range(3)]}).close()
    Plan(storage, LAST, {}).close()
    return root / TYPE


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return close_all(tmp_path)


def of(folder: Path, hour: Hour, name: str = MARKER) -> Path:
    return folder.parent / hour.bucket_path(TYPE) / name


def said(folder: Path, last: str | None = None) -> str:
    return "\n".join(f"{where}: {what}" for where, what in tool.verify(folder, last).findings)


def test_a_copy_as_it_was_closed_has_no_findings(folder: Path) -> None:
    report = tool.verify(folder, str(LAST))
    assert report.findings == []
    assert (report.type, report.buckets, report.events) == (TYPE, 4, 4 + 35 + 3)
    assert (report.first, report.last, report.grades) == (str(EARLIER), str(LAST), {"proved": 4})


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def edit(folder: Path, **changes: Any) -> None:
    """The marker of an hour."""
    path = of(folder, HOUR)
    path.write_text(json.dumps(json.loads(path.read_text()) | changes, indent=1))


def alter_sealed(folder: Path) -> None:
    """The marker of an hour, with a digest of itself; then it says to have been closed later."""
    path = of(folder, HOUR)
    marker = (
        Manifest.decode(path.read_bytes())
        .model_copy(update={"software": "hourmark 0.3.0"})
        .with_own_digest()
        .encode()
    )
    altered = marker.replace(b'"closed_at_ms": ', b'"closed_at_ms": 9')
    assert altered != marker
    path.write_bytes(altered)


def append_space(folder: Path) -> None:
    """To the marker of an hour."""
    with of(folder, HOUR).open("ab") as marker:
        marker.write(b" ")


def swap(one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def swap_files(folder: Path) -> None:
    swap(of(folder, HOUR, "part-00000.avro"), of(folder, HOUR, "part-00001.avro"))


def forge_files(folder: Path) -> None:
    """A file is replaced, and its own marker is made to agree: the next marker tells."""
    file, marker = of(folder, HOUR, "part-00001.avro"), of(folder, HOUR)
    shutil.copy(of(folder, HOUR, "part-00000.avro"), file)
    manifest = json.loads(marker.read_text())
    manifest["files"][-2] |= {k: manifest["files"][0][k] for k in ("bytes", "blake2b", "records")}
    marker.write_text(json.dumps(manifest))


# What is done to the copy, and what must be said.
AFTERWARDS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a bit of a file": (lambda f: flip(of(f, HOUR, "part-00000.avro")), "part-00000.avro: blake2b"),
    "a bit of a late file": (
        lambda f: flip(of(f, HOUR, "late-00000.avro")),
        "late-00000.avro: blake2b",
    ),
    "a file cut off": (
        lambda f: of(f, HOUR, "part-00000.avro").write_bytes(b"Obj\x01"),
        "4 bytes, but the marker states",
    ),
    "a file gone": (
        lambda f: of(f, HOUR, "late-00000.avro").unlink(),
        "late-00000.avro: is missing",
    ),
    "a file added": (
        lambda f: of(f, HOUR, "part-00009.avro").write_bytes(b"x"),
        "part-00009.avro: exists",
    ),
    "a folder added": (lambda f: of(f, HOUR, "more").mkdir(), "more: exists"),
    "a file beside the buckets": (
        lambda f: (f / "date=2026-11-21" / "notes").write_text("x"),
        "notes: belongs to no bucket",
    ),
    "a folder beside the buckets": (
        lambda f: (f / "date=2026-11-22").mkdir(),
        "date=2026-11-22: belongs to no bucket",
    ),
    "files swapped": (swap_files, "part-00001.avro: blake2b"),
    "buckets swapped": (lambda f: swap(of(f, HOUR, ""), of(f, LATER, "")), "it is the marker of"),
    "a bucket gone": (lambda f: shutil.rmtree(of(f, HOUR, "")), "there is no bucket between"),
    "the first bucket gone": (
        lambda f: shutil.rmtree(of(f, EARLIER, "")),
        "this is not the type's first",
    ),
    "a marker gone": (
        lambda f: of(f, HOUR).unlink(),
        "hour=05/part-00000.avro: belongs to no bucket",
    ),
    "a marker's space": (append_space, "06: broken chain"),
    "a marker of nothing": (lambda f: of(f, HOUR).write_text("{}"), "no marker of this bucket"),
    "what nothing else tells": (alter_sealed, "its own digest does not match"),
    "a marker of another type": (lambda f: edit(f, type="other"), "is of type other"),
    "a file and its marker": (forge_files, "06: broken chain"),
    "counts": (lambda f: edit(f, events=36), "36 events, but its files have 35"),
    "the sum of ids": (lambda f: edit(f, id_sum="0" * 16), "the sum of ids is"),
    "late counts": (lambda f: edit(f, late={str(EARLIER): 4}), "late events by hour are"),
    "another codec": (lambda f: edit(f, codec="snappy"), "its codec is deflate, but by the marker"),
    "no codec": (lambda f: edit(f, codec=None), "its codec is deflate, but by the marker"),
    "a codec without files": (
        lambda f: edit(f, files=[], events=0),
        "it states a codec, but lists no files",
    ),
    "an unchained marker": (
        lambda f: edit(f, previous=None),
        "05: broken chain: its marker follows None",
    ),
    "a future format": (lambda f: edit(f, format=2), "format 2, but this tool supports 1"),
    "all buckets": (lambda f: shutil.rmtree(f / "date=2026-11-21"), "there is no bucket"),
}


@pytest.mark.parametrize("name", AFTERWARDS)
def test_what_was_changed_in_the_copy_is_found(folder: Path, name: str) -> None:
    change, words = AFTERWARDS[name]
    change(folder)
    assert words in said(folder)


# What a closer would have to do wrong: these markers agree with their files.
BEFORE: dict[str, tuple[Callable[[Plan], object], str]] = {
    "doubled": (
        lambda p: p.files["part-00001.avro"].append(p.files["part-00000.avro"][3]),
        "more than once",
    ),
    "late and on time": (
        lambda p: p.files["late-00000.avro"].append(make_event(EARLIER, 7)),
        "more than once",
    ),
    "of another hour": (
        lambda p: p.files["part-00000.avro"].append(make_event(LATER, 99)),
        "of another hour",
    ),
    "late of its own hour": (
        lambda p: p.files["late-00000.avro"].append(make_event(HOUR, 99)),
        "of another hour",
    ),
    "proved, and waives": (
        lambda p: p.changes.update(evidence=_evidence(p, waived=["a host"])),
        "but waives",
    ),
    "timed out without waive": (lambda p: p.changes.update(grade=Grade.TIMED_OUT), "but waives []"),
    "empty, and promised": (
        lambda p: p.changes.update(evidence=_evidence(p, method="empty")),
        "nothing was promised",
    ),
    "an unknown method": (
        lambda p: p.changes.update(evidence=_evidence(p, method="guess")),
        "its method is 'guess'",
    ),
    "closed too early": (
        lambda p: p.changes.update(closed_at_ms=HOUR.end_ms - 1),
        "before its hour ended",
    ),
    "fewer than nothing": (lambda p: p.changes.update(unaudited=-1), "negative count"),
}


def _evidence(plan: Plan, **changes: Any) -> Any:
    return plan.evidence().model_copy(update=changes)


@pytest.mark.parametrize("name", BEFORE)
def test_a_bucket_that_was_closed_wrong_is_found(tmp_path: Path, name: str) -> None:
    change, words = BEFORE[name]
    assert words in said(close_all(tmp_path, change=change))


def test_the_end_of_the_chain_is_missed_only_where_it_is_known(folder: Path) -> None:
    shutil.rmtree(of(folder, LAST, ""))
    assert said(folder) == ""
    assert f"{LAST}: missing: the copy ends with {LATER}" in said(folder, str(LAST))
    assert "does not show whether" in "\n".join(tool.render_lines(tool.verify(folder), None))


def test_bucket_verify_says_so_too(folder: Path) -> None:
    append_space(folder)
    storage = LocalDisk(folder.parent)
    assert [f.kind for f in verify_bucket(storage, TYPE, LATER).findings] == [BucketFault.CHAIN]
    assert verify_bucket(storage, TYPE, HOUR).findings == ()


def test_it_runs_alone_and_its_exit_codes_say_what_it_found(folder: Path) -> None:
    program = [sys.executable, "-I", str(Path(tool.__file__)), str(folder)]
    whole = subprocess.run(
        [*program, "--json", "--last", str(LAST)], capture_output=True, text=True, check=False
    )
    assert (whole.returncode, json.loads(whole.stdout)["findings"]) == (0, [])
    of(folder, HOUR, "part-00000.avro").unlink()
    assert subprocess.run(program, capture_output=True, check=False).returncode == 1
    for wrong in ([*program[:-1], str(folder / "no")], [*program, "--last", "noon"]):
        assert subprocess.run(wrong, capture_output=True, check=False).returncode == 2


def test_it_imports_nothing_but_python_and_fastavro() -> None:
    imported = set(
        re.findall(r"^(?:from|import) (\w+)", Path(tool.__file__).read_text(), re.MULTILINE)
    )
    assert imported - set(sys.stdlib_module_names) == {"fastavro"}


def test_it_knows_every_field_of_a_manifest_that_it_reads() -> None:
    read = set(re.findall(r'\bm\["(\w+)"\]|manifest\["(\w+)"\]', Path(tool.__file__).read_text()))
    assert {name for pair in read for name in pair if name} <= set(Manifest.model_fields)


def test_no_flipped_bit_of_a_marker_is_overlooked(folder: Path) -> None:
    markers = sorted(folder.rglob(MARKER))
    whole = tool.verify(folder, str(LAST))
    assert whole.findings == []
    seed = random.randrange(1 << 32)
    for marker in markers:
        good = marker.read_bytes()
        for bit in random.Random(seed).choices(range(8 * len(good)), k=50):
            bad = bytearray(good)
            bad[bit // 8] ^= 1 << bit % 8
            marker.write_bytes(bad)
            report = tool.verify(folder, str(LAST))
            assert report.findings or report.last_marker != whole.last_marker, (
                f"bit {bit} of {marker} (seed {seed})"
            )
        marker.write_bytes(good)


def _expire(folder: Path) -> None:
    storage = LocalDisk(folder.parent)
    now_ms = (LAST.start_s + 2 * 86_400) * 1000
    plan = plan_expiry(storage, TYPE, 1, 3600, now_ms)
    for day in plan.expired:
        remove_day(storage, plan, day, now_ms, "me@here")


def _with_next_day(folder: Path) -> Hour:
    # Another bucket, so that the day of the others can be removed.
    later = Hour(LAST.start_s + 24 * 3600)
    marker = of(folder, LAST).read_bytes()
    files = {"part-00000.avro": [make_event(later, n) for n in range(3)]}
    previous = PreviousMarker.from_marker(str(LAST), marker)
    Plan(LocalDisk(folder.parent), later, files, {"previous": previous}).close()
    return later


def test_the_markers_of_removed_buckets_are_part_of_the_chain(folder: Path) -> None:
    later = _with_next_day(folder)
    _expire(folder)
    report = tool.verify(folder, str(later))
    assert report.findings == []
    assert (report.buckets, report.removed, report.first) == (5, 4, str(EARLIER))


def test_a_removed_bucket_without_its_tombstone_breaks_the_chain(folder: Path) -> None:
    _with_next_day(folder)
    _expire(folder)
    (tombstone,) = (folder / "_removed").iterdir()
    tombstone.write_bytes(tombstone.read_bytes().replace(b'"days": 1', b'"days": 9'))
    assert "it was changed after it was written" in said(folder)
    tombstone.unlink()
    assert "the copy begins here, but this is not the type's first bucket" in said(folder)
