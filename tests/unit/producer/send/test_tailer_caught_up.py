"""`caught_up_at` is the word that buckets are closed on: it is never claimed too early, and it is
claimed again and again.
"""

from __future__ import annotations

import dataclasses
import os
import threading

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder
from tests.support.waiting import wait_for

from hourmark.config.groups import TailedSource
from hourmark.process.file_identity import FileIdentity
from hourmark.records.ranges import ByteRange
from hourmark_producer.files.tracked_file import (
    NEVER,
    FileAccount,
    FileLocation,
    FileObservation,
    FilePosition,
    FileProgress,
    ScanResult,
    SpooledRange,
    TrackedFile,
)
from hourmark_producer.send.reports import AcknowledgmentTarget, CaughtUpTime
from hourmark_producer.tailer import Tailer
from hourmark_producer.watch.scanner import FileScanner

RANGE = ByteRange(
    host_id="0" * 32,
    file_id="1" * 32,
    generation=0,
    start=100,
    end=150,
    observed_at_ms=0,
    rules="r",
    zone="UTC",
    source="app",
    path="/app.log",
    host_name="host",
)


def observed(size: int) -> FileObservation:
    return FileObservation(size=size, mtime_ns=0, account=FileAccount(size), base_s=0.0)


def tracked(size: int, **progress: object) -> TrackedFile:
    file = TrackedFile(
        file_id="1" * 32,
        identity=FileIdentity(1, 1, 1),
        place=FileLocation("app", "/app.log", "/app.log"),
    )
    file.observed = observed(size)
    file.due = 1
    file.progress = dataclasses.replace(FileProgress(examined_scan=1), **progress)  # type: ignore[arg-type]
    return file


def in_flight(size: int, *, acknowledged: bool = False) -> TrackedFile:
    """Read to 150; the range that ends there is on its way, or its answer has come."""
    return tracked(
        size,
        position=FilePosition(offset=150),
        quiet_to=150,
        in_flight=(SpooledRange(1, RANGE, acknowledged=acknowledged),),
    )


@pytest.mark.parametrize(
    ("file", "met"),
    [
        (tracked(100, position=FilePosition(offset=100), quiet_to=100), True),
        (
            tracked(100, position=FilePosition(offset=90), quiet_to=100),
            True,
        ),  # an unterminated last line
        (tracked(100, position=FilePosition(offset=90), quiet_to=99), False),
        (
            tracked(100, position=FilePosition(offset=100), quiet_to=100, examined_scan=0),
            False,
        ),  # not looked at since
        (in_flight(100), True),  # behind the target
        (in_flight(101), False),
        (in_flight(100, acknowledged=True), True),
        (in_flight(120, acknowledged=True), False),
    ],
)
def test_when_a_file_is_read_up_to_its_target(file: TrackedFile, met: bool) -> None:
    assert AcknowledgmentTarget.from_file(file).is_met() is met


def test_a_file_that_is_gone_still_waits_for_its_last_range() -> None:
    file = tracked(0, in_flight=(SpooledRange(1, RANGE),))
    file.retired, file.observed = True, NEVER
    assert not AcknowledgmentTarget.from_file(file).is_met()
    file.progress = dataclasses.replace(file.progress, in_flight=())
    assert AcknowledgmentTarget.from_file(file).is_met()


def test_an_attempt_is_kept_until_it_succeeds_and_given_up_when_it_cannot() -> None:
    claim, file = CaughtUpTime(), tracked(100)
    claim.start_attempt({"a": 1000}, [AcknowledgmentTarget.from_file(file)])
    claim.start_attempt({"a": 2000}, [])  # does not replace it
    assert not claim.is_caught_up()
    file.progress = dataclasses.replace(file.progress, quiet_to=100)
    assert claim.service_time_ms("a") == 1000
    file.observed, file.due = observed(200), 3
    claim.start_attempt({"a": 3000}, [AcknowledgmentTarget.from_file(file)])
    assert claim.service_time_ms("a") == 1000
    file.progress = dataclasses.replace(
        file.progress, position=FilePosition(generation=1)
    )  # truncated
    claim.start_attempt({"a": 4000}, [])
    assert claim.service_time_ms("a") == 4000


def test_a_source_without_files_is_caught_up(host: Host, recorder: Recorder) -> None:
    summary = host.drain()
    assert summary.goodbye
    assert recorder.last.caught_up_at_ms is not None


def test_the_first_report_precedes_the_first_range_and_a_hello_both(
    host: Host, recorder: Recorder
) -> None:
    recorder.report_status = 503
    with host.running(lines(10)):
        wait_for(lambda: recorder.requests.count("/v1/reports") >= 3, "reports are tried")
        assert "/v1/ranges" not in recorder.requests
        recorder.report_status = 200
        recorder.wait_stored(1)
    assert recorder.requests[0] == "/v1/hello"


def test_reports_of_one_incarnation_are_numbered_and_end_with_goodbye(
    host: Host, recorder: Recorder
) -> None:
    host.drain(lines(10))
    first = list(recorder.reports)
    assert [one.sequence for one in first] == list(range(len(first)))
    assert [one.goodbye for one in first] == [False] * (len(first) - 1) + [True]
    assert first[-1].sources[0].pending_bytes == 0
    host.drain()
    assert len({one.incarnation for one in recorder.reports}) == 2
    assert len({one.host_id for one in recorder.reports}) == 1


def test_no_goodbye_with_work_left(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourmark_producer.tailer.STOP_WITHIN_S", 0.3)
    recorder.behaviour = lambda _: 503
    with host.running(lines(10)):
        recorder.wait_received(1)
    assert not any(one.goodbye for one in recorder.reports)


def test_a_stop_is_no_goodbye_as_the_application_writes_on(host: Host, recorder: Recorder) -> None:
    with host.running(lines(10)):
        recorder.wait_stored(1)
    assert not any(one.goodbye for one in recorder.reports)
    host.drain()
    assert recorder.reports[-1].goodbye


def test_an_unacknowledged_range_holds_the_claim_back(host: Host, recorder: Recorder) -> None:
    with host.running():
        wait_for(
            lambda: bool(recorder.reports) and recorder.last.caught_up_at_ms is not None,
            "caught up",
        )
        recorder.behaviour = lambda _: 503
        host.append(lines(10))
        written_ms = recorder.clock()
        recorder.wait_received(5)
        held_ms = recorder.last.caught_up_at_ms
        assert held_ms is not None and held_ms <= written_ms
        recorder.behaviour = lambda _: 200
        wait_for(lambda: (recorder.last.caught_up_at_ms or 0) > written_ms, "caught up again")


def test_a_file_that_cannot_be_opened_holds_its_source_back_and_is_named(
    host: Host,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    real = os.open
    denied = threading.Event()
    denied.set()

    def guarded(path: str, flags: int, *rest: int) -> int:
        if denied.is_set() and str(path).endswith("app.log.secret"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, flags, *rest)

    monkeypatch.setattr("hourmark_producer.watch.scanner.os.open", guarded)
    host.append(lines(1))
    host.append(lines(1, 1), host.logs / "app.log.secret")
    (host.logs / "other").mkdir()
    host.settings["sources"].append(TailedSource(name="other", paths=[f"{host.logs}/other/*"]))
    with host.running():
        wait_for(
            lambda: (
                bool(recorder.reports)
                and recorder.reports[-1].sources[1].caught_up_at_ms is not None
            ),
            "the other source is caught up",
        )
        recorder.wait_stored(1)
        assert recorder.last.caught_up_at_ms is None
        assert "app.log.secret" in caplog.text
        denied.clear()
        wait_for(lambda: recorder.last.caught_up_at_ms is not None, "caught up once it can be read")
    assert len(recorder.contents()) == 2


def test_a_drain_that_cannot_read_everything_says_what(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.scandir

    def guarded(path: str) -> object:
        if str(path) == str(host.logs):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr("hourmark_producer.files.patterns.os.scandir", guarded)
    with pytest.raises(Exception, match=f"{host.logs}: Permission denied"):
        host.drain()
    assert not any(one.goodbye for one in recorder.reports)


def test_never_too_early_under_a_writer_that_races_the_scan(host: Host, recorder: Recorder) -> None:
    claims = _race(host, recorder)
    assert not _too_early(recorder, claims)
    assert len({at_ms for at_ms, _ in claims}) >= CLAIMS, (
        "a busy source must be caught up again and again"
    )


def test_the_race_finds_claims_that_are_too_early(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AcknowledgmentTarget, "is_met", lambda _: True)
    assert _too_early(recorder, _race(host, recorder, fails_every=2))


def test_what_is_claimed_is_a_reading_from_before_the_scan(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, before, claimed = [0], dict[int, int](), dict[int, int]()
    recorder.clock = lambda: now[0]
    scan, begin = FileScanner.scan, CaughtUpTime.start_attempt

    def slow_scan(self: FileScanner) -> ScanResult:
        before[len(before)] = now[0]
        seen = scan(self)
        now[0] += 1000
        running[0].client.current_reading(age_max_s=-1.0)  # an answer arrives while it scans
        return seen

    def noted(
        self: CaughtUpTime,
        readings_ms: dict[str, int],
        targets: list[AcknowledgmentTarget],
        at_s: float,
    ) -> None:
        claimed[max(before)] = readings_ms[recorder.url]  # of the scan that has just ended
        begin(self, readings_ms, targets, at_s)

    monkeypatch.setattr(FileScanner, "scan", slow_scan)
    monkeypatch.setattr(CaughtUpTime, "start_attempt", noted)
    running: list[Tailer] = []
    with host.tailer() as (tailer, _):
        running.append(tailer)
        tailer.run(threading.Event(), drain=True)
    assert claimed
    assert all(reading_ms <= before[number] for number, reading_ms in claimed.items())


CLAIMS = 10
Claim = tuple[int, int]  # T, and how many ranges were acknowledged when the report arrived


def _race(host: Host, recorder: Recorder, *, fails_every: int = 7) -> list[Claim]:
    """A writer against the scan.

    The service's clock is a counter of writes, and moves on only after each write.

    So when a report claims T, every line with a number up to T must have been acknowledged before
    it.
    """
    now, claims, done = [0], list[Claim](), threading.Event()
    recorder.clock = lambda: now[0]
    recorder.behaviour = lambda one: 503 if one.number % fails_every == fails_every // 2 else 200
    host.settings |= {"scan_seconds": 0.003, "report_seconds": 0.004, "range_bytes": 1024}

    def write() -> None:
        rotation, pause_s = 0, 0.002
        while (
            not done.is_set()
            and now[0] < 100_000
            and (now[0] < 3000 or len({at_ms for at_ms, _ in claims}) < CLAIMS)
        ):
            rotation += 1
            with host.app.open("ab", buffering=0) as file:
                for tick in range(now[0] + 1, now[0] + 201):
                    file.write(b"%d\n" % tick)
                    now[0] = tick
                    if tick % 10 == 0:
                        done.wait(pause_s)
                host.app.rename(host.logs / f"app.log.{rotation}")
            if now[0] >= 3000:
                pause_s *= 1.2  # On a busy machine, the tailer catches up with a slower writer.

    recorder.on_report = lambda report: claims.extend(
        (source.caught_up_at_ms, len(recorder.stored))
        for source in report.sources
        if source.caught_up_at_ms is not None
    )
    with host.running():
        writer = threading.Thread(target=write)
        writer.start()
        try:
            wait_for(lambda: not writer.is_alive(), "the writer is done", 120)
            wait_for(lambda: bool(claims) and claims[-1][0] >= now[0], "caught up at the end")
        finally:
            done.set()
            writer.join()
    return claims


def _too_early(recorder: Recorder, claims: list[Claim]) -> list[str]:
    acknowledged: list[set[int]] = [set()]
    for one in recorder.stored:
        acknowledged.append(acknowledged[-1] | {int(line) for line in one.body.split()})
    result = []
    for at_ms, count in claims:
        missing = set(range(1, at_ms + 1)) - acknowledged[count]
        if missing:
            result.append(f"claimed {at_ms} without {sorted(missing)[:5]}")
    return result
