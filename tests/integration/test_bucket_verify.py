"""A bucket is built, a fault is planted, and `bucket verify` names it: a checker that cannot fail is worse than none."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import random
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from click.testing import CliRunner, Result

from etl.avro_container import ContainerWriter
from etl.bucket_checks import BucketFinding, Kind, find_gaps, find_late_clashes, verify_bucket
from etl.bucket_cli import bucket
from etl.buckets import BadMarker, NotClosed, list_hours, list_types, read_events, read_manifest
from etl.storage import LocalDisk, Storage, open_storage
from hourmark.avro import event_schema, fingerprint
from hourmark.config import Config
from hourmark.errors import Finding, UsageError
from hourmark.event_id import EventId, LineIds
from hourmark.hours import Hour
from hourmark.manifest import MARKER, BucketFile, Evidence, Grade, Manifest

TYPE = "end-song"
HOUR = Hour.parse("2026-11-21T05")
EARLIER = Hour.parse("2026-11-21T04")
LATER = Hour.parse("2026-11-21T06")
SCHEMA = event_schema(TYPE, [{"name": "line", "type": "bytes"}, {"name": "ms", "type": "double"}])

Datum = tuple[EventId, bytes]


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return LocalDisk(tmp_path / "root")


def make_event(hour: Hour, number: int, line: bytes = b"a line") -> Datum:
    time_ms = hour.start_s * 1000 + number
    event_id = LineIds("host-1", "file-1", 0).make(time_ms, number, line)
    event = {
        "event_id": bytes(event_id),
        "event_time": time_ms,
        "host": "host-1",
        "source": "/var/log/app.log",
        "file": {"id": "file-1", "generation": 0},
        "position": number,
        "line": line,
        "ms": 1.5,
    }
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(SCHEMA), event)
    return event_id, file.getvalue()


@dataclasses.dataclass
class Plan:
    """What goes into a bucket; a test changes it before or after `close`."""

    storage: Storage
    hour: Hour
    files: dict[str, list[Datum]]
    changes: dict[str, Any] = dataclasses.field(default_factory=dict)  # of the manifest

    def close(self) -> Manifest:
        folder = self.hour.bucket_path(TYPE)
        listed = [self._write(f"{folder}/{name}", name, datums) for name, datums in self.files.items()]
        ids = [event_id for datums in self.files.values() for event_id, _ in datums]
        late: dict[str, int] = {}
        for name, datums in self.files.items():
            for event_id, _ in datums if name.startswith("late-") else []:
                label = str(Hour.of(event_id.time_ms))
                late[label] = late.get(label, 0) + 1
        manifest = Manifest(
            type=TYPE,
            hour=str(self.hour),
            bucket_seconds=self.hour.length_s,
            grade=Grade.PROVED,
            evidence=Evidence(method="join", cut_at_ms=self.hour.end_ms, audit_records=1, promised=len(ids), audit_next={"0": 1}),
            files=listed,
            events=len(ids),
            late=late,
            duplicates_removed=2,
            surplus=0,
            id_sum=f"{sum(event_id.tail for event_id in ids) % (1 << 64):016x}",
            offsets=[],
            ledger="3f0c8c1e",
            ledger_commit=7,
            attempt="attempt-1",
            closed_at_ms=self.hour.end_ms,
            software="hourmark test",
        ).model_copy(update=self.changes)
        self.storage.write_new(f"{folder}/{MARKER}", manifest.encode())
        return manifest

    def _write(self, path: str, name: str, datums: list[Datum]) -> BucketFile:
        with self.storage.create(path) as file:
            writer = ContainerWriter(file, json.dumps(SCHEMA))
            writer.append_many(datum for _, datum in datums)
            stats = writer.close()
        return BucketFile(
            name=name,
            records=stats.records,
            bytes=stats.bytes,
            blake2b=stats.blake2b,
            schema_id=1,
            schema_fingerprint=fingerprint(SCHEMA),
        )


@pytest.fixture
def plan(storage: Storage) -> Plan:
    files = {
        "part-00000.avro": [make_event(HOUR, number) for number in range(20)],
        "part-00001.avro": [make_event(HOUR, number) for number in range(20, 30)],
        "late-00000.avro": [make_event(EARLIER, number) for number in range(5)],
    }
    return Plan(storage, HOUR, files)


def found(storage: Storage, hour: Hour = HOUR) -> dict[Kind, BucketFinding]:
    return {finding.kind: finding for finding in verify_bucket(storage, TYPE, hour).findings}


def path_of(storage: Storage, name: str) -> Path:
    assert isinstance(storage, LocalDisk)
    return storage.root / HOUR.bucket_path(TYPE) / name


# --- what is right


def test_a_bucket_as_it_was_closed_has_no_findings(storage: Storage, plan: Plan) -> None:
    manifest = plan.close()
    verdict = verify_bucket(storage, TYPE, HOUR)
    assert verdict.findings == ()
    assert (verdict.events, verdict.size) == (35, sum(file.bytes for file in manifest.files))
    assert [event["position"] for event in read_events(storage, TYPE, HOUR, manifest)] == [*range(30), *range(5)]


def test_an_empty_bucket_has_no_findings(storage: Storage) -> None:
    Plan(storage, HOUR, {}).close()
    assert found(storage) == {}


def test_types_and_hours_are_listed_in_turn(storage: Storage) -> None:
    for hour in (LATER, EARLIER, HOUR):
        Plan(storage, hour, {}).close()
    storage.make_folder("_attempts/x")
    storage.make_folder(f"{TYPE}/date=2026-11-21/hour=99")
    storage.make_folder(f"{TYPE}/not-a-date")
    assert list_types(storage) == [TYPE]
    assert list_hours(storage, TYPE, 3600) == [EARLIER, HOUR, LATER]
    assert find_gaps(TYPE, [EARLIER, HOUR, LATER]) == []


def test_buckets_of_a_minute_have_a_level_more(storage: Storage) -> None:
    minute = Hour.parse("2026-11-21T05:07", 60)
    storage.make_folder(minute.bucket_path(TYPE))
    assert list_hours(storage, TYPE, 60) == [minute]


def test_nothing_is_listed_below_a_root_that_is_not_there(storage: Storage) -> None:
    assert list_types(storage) == []
    assert list_hours(storage, TYPE, 3600) == []


@pytest.mark.stack
def test_a_bucket_on_hdfs_reads_as_one_on_disk(config: Config, plan: Plan) -> None:
    name = f"hourmark-test-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    plan.storage = open_storage(config.storage.model_copy(update={"root": f"{config.storage.root}/{name}"}))
    try:
        manifest = plan.close()
        assert verify_bucket(plan.storage, TYPE, HOUR).findings == ()
        assert list_hours(plan.storage, TYPE, 3600) == [HOUR]
        assert read_manifest(plan.storage, TYPE, HOUR) == manifest
        folder = HOUR.bucket_path(TYPE)
        plan.storage.delete(f"{folder}/part-00001.avro")
        plan.storage.write_new(f"{folder}/part-00002.avro", b"Obj")
        assert set(found(plan.storage)) == {Kind.MISSING_FILE, Kind.EXTRA_FILE}
    finally:
        open_storage(config.storage).delete(name)


# --- planted before closing: the manifest tells of a bucket that breaks a rule


def doubled_within_a_file(plan: Plan) -> None:
    plan.files["part-00000.avro"].append(plan.files["part-00000.avro"][3])


def doubled_across_files(plan: Plan) -> None:
    plan.files["part-00001.avro"].append(plan.files["part-00000.avro"][3])


def of_a_later_hour(plan: Plan) -> None:
    plan.files["part-00000.avro"].append(make_event(LATER, 0))


def of_an_earlier_hour_in_an_on_time_file(plan: Plan) -> None:
    plan.files["part-00000.avro"].append(make_event(EARLIER, 77))


def on_time_in_a_late_file(plan: Plan) -> None:
    plan.files["late-00000.avro"].append(make_event(HOUR, 77))


def wrong_late_counts(plan: Plan) -> None:
    plan.changes["late"] = {"2026-11-21T04": 4}


def wrong_id_sum(plan: Plan) -> None:
    plan.changes["id_sum"] = "0123456789abcdef"


def id_sum_that_is_no_number(plan: Plan) -> None:
    plan.changes["id_sum"] = "many"


def wrong_total(plan: Plan) -> None:
    plan.changes["events"] = 34


def another_hour(plan: Plan) -> None:
    plan.changes["hour"] = str(LATER)


def another_type(plan: Plan) -> None:
    plan.changes["type"] = "start-song"


def newer_format(plan: Plan) -> None:
    plan.changes["format"] = 2


def strange_file_name(plan: Plan) -> None:
    plan.files["other.avro"] = plan.files.pop("part-00001.avro")


BEFORE: list[tuple[Callable[[Plan], None], Kind]] = [
    (doubled_within_a_file, Kind.DUPLICATE),
    (doubled_across_files, Kind.DUPLICATE),
    (of_a_later_hour, Kind.HOUR),
    (of_an_earlier_hour_in_an_on_time_file, Kind.HOUR),
    (on_time_in_a_late_file, Kind.HOUR),
    (wrong_late_counts, Kind.LATE),
    (wrong_id_sum, Kind.ID_SUM),
    (id_sum_that_is_no_number, Kind.ID_SUM),
    (wrong_total, Kind.COUNT),
    (another_hour, Kind.BAD_MARKER),
    (another_type, Kind.BAD_MARKER),
    (newer_format, Kind.BAD_MARKER),
    (strange_file_name, Kind.BAD_MARKER),
]


@pytest.mark.parametrize(("plant", "kind"), BEFORE, ids=lambda value: getattr(value, "__name__", ""))
def test_a_bucket_that_breaks_a_rule_is_named(storage: Storage, plan: Plan, plant: Callable[[Plan], None], kind: Kind) -> None:
    plant(plan)
    plan.close()
    assert set(found(storage)) == {kind}


# --- planted after closing: somebody changed what never changes


def dropped_file(folder: Path) -> None:
    (folder / "part-00001.avro").unlink()


def extra_file(folder: Path) -> None:
    (folder / "part-00002.avro").write_bytes(b"Obj\x01")


def extra_folder(folder: Path) -> None:
    (folder / "part-00002.avro").mkdir()


def no_marker(folder: Path) -> None:
    (folder / MARKER).unlink()


def empty_marker(folder: Path) -> None:
    (folder / MARKER).write_bytes(b"")


def marker_of_another_tool(folder: Path) -> None:
    (folder / MARKER).write_text('{"format": 1, "files": []}')


def marker_that_is_no_utf8(folder: Path) -> None:
    (folder / MARKER).write_bytes(b"\xff\xfe\x00")


def altered_byte(folder: Path) -> None:
    content = bytearray((folder / "part-00000.avro").read_bytes())
    content[len(content) // 2 + 300] ^= 0x10
    (folder / "part-00000.avro").write_bytes(content)


def cut_short(folder: Path) -> None:
    file = folder / "part-00000.avro"
    file.write_bytes(file.read_bytes()[:-30])


def no_avro(folder: Path) -> None:
    file = folder / "part-00000.avro"
    file.write_bytes(b"x" * file.stat().st_size)


def appended(folder: Path) -> None:
    with (folder / "part-00000.avro").open("ab") as file:
        file.write(b"\n")


def rewritten(folder: Path, datums: list[Datum], schema: dict[str, Any] = SCHEMA) -> None:
    with (folder / "part-00000.avro").open("wb") as file:
        writer = ContainerWriter(file, json.dumps(schema))
        writer.append_many(datum for _, datum in datums)
        writer.close()


def one_event_less(folder: Path) -> None:
    rewritten(folder, [make_event(HOUR, number) for number in range(19)])


def one_event_instead_of_another(folder: Path) -> None:
    rewritten(folder, [make_event(HOUR, number) for number in [*range(19), 500]])


def altered_event(folder: Path) -> None:
    event_id, _ = make_event(HOUR, 7)
    _, other = make_event(HOUR, 7, b"another line")
    same_id = other.replace(bytes(make_event(HOUR, 7, b"another line")[0]), bytes(event_id))
    rewritten(folder, [(event_id, same_id) if number == 7 else make_event(HOUR, number) for number in range(20)])


def another_schema(folder: Path) -> None:
    rewritten(folder, [make_event(HOUR, number) for number in range(20)], {**SCHEMA, "doc": "another"})


AFTER: list[tuple[Callable[[Path], None], set[Kind]]] = [
    (dropped_file, {Kind.MISSING_FILE}),
    (extra_file, {Kind.EXTRA_FILE}),
    (extra_folder, {Kind.EXTRA_FILE}),
    (no_marker, {Kind.MISSING_MARKER}),
    (empty_marker, {Kind.BAD_MARKER}),
    (marker_of_another_tool, {Kind.BAD_MARKER}),
    (marker_that_is_no_utf8, {Kind.BAD_MARKER}),
    (altered_byte, {Kind.DIGEST}),
    (cut_short, {Kind.SIZE, Kind.DIGEST, Kind.UNREADABLE}),
    (no_avro, {Kind.DIGEST, Kind.UNREADABLE}),
    (appended, {Kind.SIZE, Kind.DIGEST}),
    (one_event_less, {Kind.SIZE, Kind.DIGEST, Kind.COUNT, Kind.ID_SUM}),
    (one_event_instead_of_another, {Kind.DIGEST, Kind.ID_SUM}),
    (altered_event, {Kind.DIGEST}),
    (another_schema, {Kind.DIGEST, Kind.SCHEMA}),
]


@pytest.mark.parametrize(("plant", "kinds"), AFTER, ids=lambda value: getattr(value, "__name__", ""))
def test_a_change_after_closing_is_named(storage: Storage, plan: Plan, plant: Callable[[Path], None], kinds: set[Kind]) -> None:
    plan.close()
    plant(path_of(storage, ""))
    findings = found(storage)
    assert kinds <= set(findings)
    assert any(finding.file in (None, "part-00000.avro", "part-00001.avro", "part-00002.avro") for finding in findings.values())


def test_any_single_altered_byte_is_a_finding(storage: Storage, plan: Plan) -> None:
    plan.close()
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    file = path_of(storage, "part-00000.avro")
    whole = file.read_bytes()
    for position in random.Random(seed).sample(range(len(whole)), 60):
        altered = bytearray(whole)
        altered[position] ^= 1 << (position % 8)
        file.write_bytes(altered)
        assert Kind.DIGEST in found(storage), position
    file.write_bytes(whole)
    assert found(storage) == {}


# --- across buckets


def test_a_late_event_that_its_own_hour_holds_too_is_named(storage: Storage, plan: Plan) -> None:
    Plan(storage, EARLIER, {"part-00000.avro": [make_event(EARLIER, number) for number in (3, 900)]}).close()
    plan.close()
    verdicts = [verify_bucket(storage, TYPE, hour) for hour in (EARLIER, HOUR)]
    assert all(not verdict.findings for verdict in verdicts)
    (finding,) = find_late_clashes(storage, TYPE, verdicts)
    assert (finding.kind, finding.hour) == (Kind.DUPLICATE, str(HOUR))
    assert str(make_event(EARLIER, 3)[0]) in finding.detail and finding.detail.startswith("1 (")


def test_a_late_event_in_two_buckets_is_named(storage: Storage, plan: Plan) -> None:
    plan.close()
    Plan(storage, LATER, {"late-00000.avro": [make_event(EARLIER, 4), make_event(EARLIER, 5)]}).close()
    (finding,) = find_late_clashes(storage, TYPE, [verify_bucket(storage, TYPE, hour) for hour in (HOUR, LATER)])
    assert (finding.kind, finding.hour) == (Kind.DUPLICATE, str(LATER))
    assert str(make_event(EARLIER, 4)[0]) in finding.detail and str(HOUR) in finding.detail


def test_late_events_that_stand_once_are_no_clash(storage: Storage, plan: Plan) -> None:
    Plan(storage, EARLIER, {"part-00000.avro": [make_event(EARLIER, 900)]}).close()
    plan.close()
    assert find_late_clashes(storage, TYPE, [verify_bucket(storage, TYPE, hour) for hour in (EARLIER, HOUR)]) == []


def test_an_hour_left_out_is_named(storage: Storage) -> None:
    (finding,) = find_gaps(TYPE, [EARLIER, LATER])
    assert (finding.kind, finding.hour) == (Kind.MISSING_BUCKET, str(HOUR))


def test_a_bucket_that_is_not_there_is_not_closed(storage: Storage, plan: Plan) -> None:
    plan.close()
    with pytest.raises(NotClosed, match="is not closed"):
        verify_bucket(storage, TYPE, LATER)
    with pytest.raises(NotClosed, match="bucket ls end-song"):
        read_manifest(storage, TYPE, LATER)


def test_an_unknown_format_is_refused(storage: Storage, plan: Plan) -> None:
    plan.changes["format"] = 2
    plan.close()
    with pytest.raises(BadMarker, match="its format is 2"):
        read_manifest(storage, TYPE, HOUR)


# --- the command line


@pytest.fixture
def run(storage: Storage, tmp_path: Path) -> Iterator[Callable[..., Result]]:
    config = tmp_path / "hourmark.toml"
    config.write_text(f'[storage]\nroot = "file://{tmp_path}/root"\n')
    yield lambda *arguments: CliRunner().invoke(bucket, [*arguments, "--config", str(config)])


def test_ls_shows_what_is_closed(plan: Plan, run: Callable[..., Result]) -> None:
    manifest = plan.close()
    result = run("ls")
    assert result.exit_code == 0
    header, row = result.stdout.splitlines()
    assert header.split() == ["type", "hour", "grade", "events", "late", "duplicates", "removed", "surplus", "bytes"]
    assert row.split() == [TYPE, str(HOUR), "proved", "35", "5", "2", "0", str(sum(file.bytes for file in manifest.files))]
    (listed,) = json.loads(run("ls", TYPE, "--json").stdout)
    assert (listed["events"], listed["late"], listed["grade"]) == (35, 5, "proved")


def test_ls_of_an_empty_root_says_so(run: Callable[..., Result]) -> None:
    result = run("ls")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no bucket is closed" in result.stderr
    assert json.loads(run("ls", "--json").stdout) == []


def test_ls_shows_a_bucket_with_a_broken_marker(storage: Storage, plan: Plan, run: Callable[..., Result]) -> None:
    plan.close()
    empty_marker(path_of(storage, ""))
    result = run("ls")
    assert f"{TYPE}  {HOUR}  -" in result.stdout
    assert "is not this bucket's manifest" in result.stderr


def test_show_prints_the_manifest(plan: Plan, run: Callable[..., Result]) -> None:
    manifest = plan.close()
    text = run("show", TYPE, str(HOUR)).stdout
    assert "proved, 35 events" in text and "part-00001.avro  10 events" in text and "5 events of 2026-11-21T04" in text
    assert Manifest.decode(run("show", TYPE, str(HOUR), "--json").stdout_bytes) == manifest


def test_verify_passes_a_bucket_that_is_right(plan: Plan, run: Callable[..., Result]) -> None:
    plan.close()
    result = run("verify")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "1 buckets, 35 events, 0 findings"
    assert json.loads(run("verify", TYPE, str(HOUR), "--json").stdout)["findings"] == []


def test_verify_names_the_finding_and_exits_with_1(storage: Storage, plan: Plan, run: Callable[..., Result]) -> None:
    plan.close()
    dropped_file(path_of(storage, ""))
    result = run("verify", TYPE)
    assert isinstance(result.exception, Finding) and result.exception.exit_code == 1
    assert f"{TYPE} {HOUR} missing-file: part-00001.avro" in result.stdout
    (finding,) = json.loads(run("verify", "--json").stdout)["findings"]
    assert (finding["kind"], finding["file"]) == ("missing-file", "part-00001.avro")


def test_verify_of_a_type_names_an_hour_left_out(storage: Storage, plan: Plan, run: Callable[..., Result]) -> None:
    plan.close()
    Plan(storage, LATER.next(), {}).close()
    result = run("verify")
    assert isinstance(result.exception, Finding)
    assert f"{TYPE} {LATER} missing-bucket" in result.stdout


def test_cat_prints_every_event(storage: Storage, run: Callable[..., Result]) -> None:
    lines = [b"plain", "ünï".encode(), b"\xff\x00\n", b""]
    Plan(storage, HOUR, {"part-00000.avro": [make_event(HOUR, n, line) for n, line in enumerate(lines)]}).close()
    events = [json.loads(line) for line in run("cat", TYPE, str(HOUR), "--json").stdout.splitlines()]
    assert [event["line"] for event in events] == ["plain", "ünï", {"base64": "/wAK"}, ""]
    assert events[1]["event_id"] == str(make_event(HOUR, 1, lines[1])[0])
    assert events[1]["event_time"] == "2026-11-21T05:00:00.001Z"
    assert events[1]["file"] == {"id": "file-1", "generation": 0}
    first, _ = run("cat", TYPE, str(HOUR), "--limit", "2").stdout.splitlines()
    assert first == '2026-11-21T05:00:00.000Z host-1 /var/log/app.log:0 {"line": "plain", "ms": 1.5}'


def test_cat_of_a_damaged_bucket_says_what_to_do(storage: Storage, plan: Plan, run: Callable[..., Result]) -> None:
    plan.close()
    no_avro(path_of(storage, ""))
    result = run("cat", TYPE, str(HOUR))
    assert isinstance(result.exception, Finding)
    assert f"hourmark bucket verify {TYPE} {HOUR}" in str(result.exception)


@pytest.mark.parametrize("command", ["show", "verify", "cat"])
def test_a_bucket_not_closed_yet_is_said_to_be(plan: Plan, run: Callable[..., Result], command: str) -> None:
    plan.close()
    result = run(command, TYPE, str(LATER))
    assert isinstance(result.exception, NotClosed) and result.exception.exit_code == 1
    assert f"{TYPE} {LATER} is not closed" in str(result.exception)


def test_an_unknown_type_is_said_to_have_no_buckets(plan: Plan, run: Callable[..., Result]) -> None:
    plan.close()
    result = run("ls", "start-song")
    assert isinstance(result.exception, NotClosed) and "types with buckets: end-song" in str(result.exception)


@pytest.mark.parametrize("label", ["yesterday", "2026-11-21T05:07", "2026-13-01T00"])
def test_a_wrong_hour_is_wrong_use(plan: Plan, run: Callable[..., Result], label: str) -> None:
    result = run("show", TYPE, label)
    assert isinstance(result.exception, UsageError) and label in str(result.exception)


@pytest.mark.parametrize("command", ["", "ls", "show", "verify", "cat"])
def test_every_help_has_an_example(command: str) -> None:
    result = CliRunner().invoke(bucket, [*command.split(), "--help"])
    assert result.exit_code == 0
    assert "hourmark bucket" in result.stdout
