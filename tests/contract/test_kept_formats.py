"""What a version wrote, every later one reads: ledger, storage, checkpoint and records of each
version stand in `kept/`.

python -m tests.contract.test_kept_formats 0.3.0     keeps what this version writes; never again under the same name
"""

from __future__ import annotations

import json
import logging
import sqlite3
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from tests.support.closing import hour, manifest, send, send_otherwise, settle, until
from tests.support.known import known
from tests.support.simulator.truth import FIRST_HOUR, TYPES, make_template
from tests.support.simulator.world import World

from hourmark.config.groups import ParsingSettings
from hourmark.process.alarms import Alarm, AlarmName
from hourmark.process.file_identity import FileIdentity
from hourmark.records.audit import AuditRecord, Promise
from hourmark.records.host_reports import HostReport, SourceReport
from hourmark.records.manifest import MARKER, Manifest
from hourmark.records.ranges import ByteRange, RangeId
from hourmark.rules.event_types import EventType, Source
from hourmark.rules.revision import ParserVersion, Rules, RulesBook, TypeVersion
from hourmark_etl.buckets.verify import verify_bucket
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.digests import find_damaged_rows
from hourmark_etl.recovery.check import check_chains, check_files, check_groups
from hourmark_etl.recovery.offset_records import read_offset_backup
from hourmark_mirror.verify.verification_state import TopicCheckpoint, VerificationState
from hourmark_mirror.watch.observation import PartitionState, TopicState, WatchState
from hourmark_mirror.watch.watch_state_store import WatchStateStore
from hourmark_producer.checkpoint.database import Checkpoint, add_loss, insert_file
from hourmark_producer.checkpoint.spooled_ranges import add_to_spool
from hourmark_producer.counters import Loss, Losses
from hourmark_producer.files.tracked_file import (
    FileLocation,
    FilePosition,
    FileProgress,
    SpooledRange,
    TrackedFile,
)

KEPT: Final = Path(__file__).parent / "kept"
HOST_ID: Final = "0" * 31 + "7"
CLICK: Final = EventType(name="click", fields=[{"name": "n", "type": "long"}])
RULES: Final = Rules(
    sequence=3,
    types={"click": TypeVersion(CLICK, 1)},
    sources={"app": Source(name="app", types=["click"])},
    parsing=ParsingSettings(),
    parser=ParserVersion(1, "2026.6"),
)
AUDIT_RECORD: Final = AuditRecord(
    range_id=RangeId(bytes(range(8))),
    kind="range",
    host_id=HOST_ID,
    host_name="web-1",
    file_id="f" * 32,
    generation=2,
    start=10,
    end=99,
    observed_at_ms=1_800_000_000_123,
    rules=RULES.id,
    source="app",
    path="/var/log/app.log",
    lines=3,
    promised=(Promise("click", FIRST_HOUR.start_s, 3, 2**64 - 5),),
    ids=bytes(range(16)),
)
REPORT: Final = HostReport(
    host_id=HOST_ID,
    host_name="web-1",
    kind="tailer",
    incarnation="one",
    sequence=4,
    received_at_ms=1_800_000_000_456,
    goodbye=False,
    sources=(SourceReport("app", 1_800_000_000_000, 7, 1),),
)
BODY: Final = b"compressed"
LOSS: Final = Loss(
    source="app", path="/var/log/app.log", at_ms=1, bytes=9, unknown=0, what="was truncated"
)
OUTGOING: Final = SpooledRange(
    1,
    ByteRange(
        host_id=HOST_ID,
        file_id="f" * 32,
        generation=2,
        start=10,
        end=99,
        observed_at_ms=1_800_000_000_123,
        rules=RULES.id,
        zone="UTC",
        source="app",
        path="/var/log/app.log",
        host_name="web-1",
    ),
)
FILE: Final = TrackedFile(
    file_id="f" * 32,
    identity=FileIdentity(1, 2, 3),
    place=FileLocation("app", "/var/log/app.log", "/var/log/app.log.1"),
    progress=FileProgress(
        position=FilePosition(generation=2, offset=99, anchor=b"before it", size_seen=200),
        in_flight=(OUTGOING,),
    ),
)
WATCHED: Final = WatchState(
    looked_ms=1_800_000_000_789,
    topics={
        "events.click": TopicState(
            "topic-id",
            "remote-id",
            {0: PartitionState(covered=17, position=17, end=19, since_ms=0)},
        )
    },
    standing=(
        Alarm(
            AlarmName.OVERTAKEN, "events.click-0", "offsets 3 to 7 may be missing", "events.click"
        ),
    ),
)


class Form(NamedTuple):
    """A record that outlives the version that wrote it, its bytes, and how it is read."""

    record: Any
    encoded: Callable[[], bytes]
    decoded: Callable[[bytes], Any]


def _rules_of(content: bytes) -> Rules | None:
    return RulesBook((key, value) for key, value in json.loads(content)).latest


RECORDS: Final[Mapping[str, Form]] = {
    "audit record": Form(AUDIT_RECORD, AUDIT_RECORD.encode, AuditRecord.decode),
    "host report": Form(REPORT, REPORT.encode, HostReport.decode),
    "rules": Form(RULES, lambda: json.dumps(list(RULES.records())).encode(), _rules_of),
}


def story(world: World) -> None:
    """One closed hour, a second with late and unaudited rows, and staged rows of a third."""
    send(world, ["click", "view"], FIRST_HOUR.start_s * 1000 + 1000)
    until(world, FIRST_HOUR)
    settle(world)
    send(world, ["click", "view"], FIRST_HOUR.start_s * 1000 + 2000)
    send(world, ["click"], hour(1).start_s * 1000 + 1000)
    send_otherwise(world, [("view", hour(1).start_s * 1000 + 2000)], recorded=False)
    until(world, hour(1))
    settle(world)
    send(world, ["click", "view"], hour(2).start_s * 1000 + 1000)
    settle(world)
    world.ledgers.keep_checks(0)


def keep(version: str) -> None:
    """What this version writes, and what it knows by name."""
    (KEPT / f"{version}.json").write_text(json.dumps(known(), indent=1) + "\n")
    with (
        tempfile.TemporaryDirectory() as name,
        zipfile.ZipFile(KEPT / f"{version}.zip", "x", zipfile.ZIP_DEFLATED) as kept,
    ):
        folder = Path(name)
        world = World(folder, make_template(folder))
        story(world)
        for path, content in sorted(world.storage._files.items()):
            kept.writestr(f"storage/{path}", content)
        with sqlite3.connect(world.ledger) as ledger:
            ledger.execute("VACUUM INTO ?", (str(folder / "kept.sqlite"),))
        kept.write(folder / "kept.sqlite", "ledger.sqlite")
        world.end()
        keep_checkpoint(folder / "checkpoint.sqlite")
        kept.write(folder / "checkpoint.sqlite", "checkpoint.sqlite")
        checks = VerificationState(folder, "edge-cluster")
        checks.topics["events.click"] = TopicCheckpoint("topic-id", {0: 17})
        checks.save()
        kept.write(folder / "state" / "checks.json", "checks.json")
        with WatchStateStore(folder).locked():
            WatchStateStore(folder).save(WATCHED)
        kept.write(folder / "state" / "watch.json", "watch.json")
        for name, form in RECORDS.items():
            kept.writestr(f"records/{name}", form.encoded())


def keep_checkpoint(path: Path) -> None:
    """A tailer's, with a range on its way."""
    Checkpoint.create(path, HOST_ID)
    checkpoint, _ = Checkpoint.open(path)
    checkpoint.commit([insert_file(FILE), add_to_spool(OUTGOING, BODY), *add_loss(LOSS)])
    checkpoint.close()


def versions() -> list[str]:
    return sorted(path.stem for path in KEPT.glob("*.zip"))


def disagreements(world: World) -> list[str]:
    """What a check of the ledger says, the clusters left out."""
    known = world.frontiers()
    found = [
        *find_damaged_rows(world.database),
        *check_chains(world.database, known),
        *check_groups(world.database, known),
    ]
    return [str(finding) for finding in (*found, *check_files(world.database, world.storage))]


def go_on_with(world: World, kept: zipfile.ZipFile, folder: Path) -> None:
    """The kept ledger and storage take the place of the world's own."""
    content = {
        name.removeprefix("storage/"): kept.read(name)
        for name in kept.namelist()
        if name.startswith("storage/")
    }
    ledger = folder / "kept.sqlite"
    world.storage.forget()
    for seen in (world.judge.closed, world.judge.where, world.judge.manifests):
        seen.clear()
    for path, value in content.items():
        world.storage.write_new(path, value)
    ledger.write_bytes(kept.read("ledger.sqlite"))
    world.ledgers._go_on_with(ledger, Database(f"sqlite:///{ledger}"))


@pytest.fixture(params=versions())
def kept(request: pytest.FixtureRequest) -> zipfile.ZipFile:
    return zipfile.ZipFile(KEPT / f"{request.param}.zip")


@pytest.mark.slow
def test_a_driver_goes_on_with_the_ledger_and_storage_of_each_version(
    kept: zipfile.ZipFile, tmp_path: Path
) -> None:
    world = World(tmp_path, make_template(tmp_path))
    story(world)  # what Kafka holds is played again; ledger and storage are the kept ones
    go_on_with(world, kept, tmp_path)
    assert disagreements(world) == []
    assert read_offset_backup(world.storage, world.database.identity()[0]).notes == ()
    until(world, hour(2))
    settle(world)
    for event_type in TYPES:
        assert [manifest(world, event_type, hour(n)).events for n in range(3)] == [1, 2, 1]
        codecs = [manifest(world, event_type, hour(n)).files_codec for n in range(3)]
        assert codecs == ["zstandard"] * 3, "an upgraded site writes what the older version reads"
        assert [verify_bucket(world.storage, event_type, hour(n)).findings for n in range(3)] == [
            (),
            (),
            (),
        ]
    world.end()


def test_a_tailer_a_verifier_and_a_watch_go_on_with_what_each_version_remembered(
    kept: zipfile.ZipFile, tmp_path: Path
) -> None:
    (tmp_path / "checkpoint.sqlite").write_bytes(kept.read("checkpoint.sqlite"))
    checkpoint, host_id = Checkpoint.open(tmp_path / "checkpoint.sqlite")
    (file,) = checkpoint.files()
    assert (file.identity, file.place) == (FILE.identity, FILE.place)
    assert (file.progress.position, file.progress.in_flight) == (
        FILE.progress.position,
        (OUTGOING,),
    )
    assert (host_id, checkpoint.body(1), checkpoint.losses()) == (
        HOST_ID,
        BODY,
        {"app": Losses(9, 0)},
    )
    checkpoint.close()
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "checks.json").write_bytes(kept.read("checks.json"))
    assert VerificationState(tmp_path, "edge-cluster").topics == {
        "events.click": TopicCheckpoint("topic-id", {0: 17})
    }
    if "watch.json" in kept.namelist():  # 0.2.0 had no watch
        (tmp_path / "state" / "watch.json").write_bytes(kept.read("watch.json"))
        with WatchStateStore(tmp_path).locked() as remembered:
            assert remembered == WATCHED


def test_markers_of_each_version_are_encoded_as_they_were(kept: zipfile.ZipFile) -> None:
    """So that markers of zstandard buckets stay as older versions read them."""
    markers = [kept.read(name) for name in kept.namelist() if name.endswith(f"/{MARKER}")]
    assert markers
    for marker in markers:
        read = Manifest.decode(marker)
        assert (read.encode(), read.codec) == (marker, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("planted", "value"),
    [
        ("hourmark_etl.staging.pieces.NOTE_FORMAT", 2),
        ("hourmark_etl.staging.verified._DIGEST_BYTES", 12),
        ("hourmark_etl.ledger.digests._BYTES", 7),
    ],
)
def test_a_planted_change_of_a_format_is_found(
    planted: str, value: int, kept: zipfile.ZipFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, make_template(tmp_path))
    go_on_with(world, kept, tmp_path)
    monkeypatch.setattr(planted, value)
    assert disagreements(world) != []
    world.end()


@pytest.mark.parametrize("name", RECORDS)
def test_records_of_each_version_are_read(kept: zipfile.ZipFile, name: str) -> None:
    assert RECORDS[name].decoded(kept.read(f"records/{name}")) == RECORDS[name].record


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    keep(sys.argv[1])
