"""Two delivery services whose clocks are wrong, and that misbehave; what they were told is compared
with the truth at once.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator

from tests.support.tailer.recorder import Received, Recorder, recording
from tests.support.tailer_model.receiving import JOURNAL, JOURNAL_MS, SYSLOG, Sent
from tests.support.tailer_model.truth import Truth, now_ms

from hourmark.records.host_reports import HostReport

SKEWS_MS_MAX = 4_000
WAIT_S = 2  # what a service asks for that asks to wait
_HEARD_AFTER_S, _ENDS_BEFORE_S = 0.8, 0.2  # what is on its way meanwhile is not held against it


class Services:
    """`lock` is held by whoever changes files or the truth, and while a report is judged."""

    def __init__(self, truth: Truth, rng: random.Random) -> None:
        self.truth = truth
        self.lock = threading.RLock()
        self.received = {JOURNAL: Sent(JOURNAL, JOURNAL_MS), SYSLOG: Sent(SYSLOG)}
        self.findings: list[str] = []
        self.away_since_ms: int | None = None  # the folder with the logs is not there
        self.claims_ms: dict[str, int] = {}  # by source, the latest, by this machine's clock
        self.last_report: HostReport | None = None
        self.recorders: list[Recorder] = []
        self.skews_ms = [rng.randrange(-SKEWS_MS_MAX, SKEWS_MS_MAX) for _ in range(2)]
        self.down = [False, False]
        self.refusing = 0.0  # so many of the ranges are refused, or dropped after they were stored
        self.stuck: dict[
            tuple[str, int, int], int
        ] = {}  # places of ranges that nobody takes, and what is answered
        self.to_be_stuck: list[int] = []  # so are some of those that come next
        self._asked_to_wait_s: dict[int, float] = {}  # monotonic
        self._faults = random.Random(rng.random())

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Both are there."""
        with contextlib.ExitStack() as stack:
            for number, skew_ms in enumerate(self.skews_ms):
                recorder = Recorder()
                recorder.clock = lambda skew_ms=skew_ms: now_ms() + skew_ms  # type: ignore[misc]
                recorder.behaviour = lambda one, number=number: self._answer(number, one)  # type: ignore[misc]
                recorder.on_report = lambda report, number=number: self._judge(number, report)  # type: ignore[misc]
                self.recorders.append(stack.enter_context(recording(recorder)))
            yield

    @property
    def urls(self) -> list[str]:
        return [recorder.url for recorder in self.recorders]

    def set_down(self, number: int, down: bool) -> None:
        """Whether one answers 503 to everything."""
        self.down[number] = down
        self.recorders[number].report_status = 503 if down else 200

    def ask_to_wait(self, *, asks: bool) -> None:
        """Whether a 503 says for how long."""
        for recorder in self.recorders:
            recorder.retry_after = str(WAIT_S) if asks else "0"

    @property
    def asks_to_wait(self) -> bool:
        """Whether a 503 says for how long."""
        return any(recorder.retry_after != "0" for recorder in self.recorders)

    def forget_who_waits(self) -> None:
        """A tailer that begins has heard nothing."""
        with self.lock:
            self._asked_to_wait_s.clear()

    def _answer(self, number: int, one: Received) -> int | str:
        with self.lock:
            self._look_for_impatience(number)
            answer = self._chosen(number, one)
            if answer in (200, "drop"):
                (self.received.get(one.range.source) or self.truth).delivered(one.body)
            if answer == 503 and self.recorders[number].retry_after != "0":
                self._asked_to_wait_s[number] = time.monotonic()
            return answer

    def _chosen(self, number: int, one: Received) -> int | str:
        place = (one.range.file_id, one.range.generation, one.range.start)
        if (
            self.to_be_stuck
            and place not in self.stuck
            and (status := self.to_be_stuck.pop(0)) != 200
        ):
            self.stuck[place] = status
        if self.down[number]:
            return 503
        if place in self.stuck:
            return self.stuck[place]
        fault = self._faults.random() < self.refusing
        return self._faults.choice((503, "drop", 500)) if fault else 200

    def _look_for_impatience(self, number: int) -> None:
        since_s = time.monotonic() - self._asked_to_wait_s.get(number, float("-inf"))
        if _HEARD_AFTER_S < since_s < WAIT_S - _ENDS_BEFORE_S:
            self.findings.append(
                f"service {number} asked to wait for {WAIT_S} s, and is sent a range "
                f"after {since_s:.1f} s"
            )

    def _judge(self, number: int, report: HostReport) -> None:
        """A claim says: all that was there before is delivered, or was destroyed."""
        with self.lock:
            self.last_report = report
            for source in report.sources:
                if source.caught_up_at_ms is None:
                    continue
                claim_ms = source.caught_up_at_ms - self.skews_ms[number]
                away_ms = self.away_since_ms
                if away_ms is not None and claim_ms > away_ms and source.source == "app":
                    self.findings.append(
                        f"{source.source} is caught up at {claim_ms}, its folder is away "
                        f"since {away_ms}"
                    )
                self.claims_ms[source.source] = max(claim_ms, self.claims_ms.get(source.source, 0))
                if (sent := self.received.get(source.source)) is not None:
                    self.findings += sent.findings_of(source, claim_ms)
                else:
                    self._look_for_undelivered(source.source, claim_ms)

    def _look_for_undelivered(self, source: str, claim_ms: int) -> None:
        for line, file, body in self.truth.undelivered.values():
            assert line.written_ms is not None
            may_be_missing = (
                body.destroyed
                or not (file.is_followed or file.looked_at)
                or self.truth.may_be_another(file)
            )
            if file.source == source and line.written_ms < claim_ms and not may_be_missing:
                self.findings.append(
                    f"{source} claims to be caught up at {claim_ms}; line {line.number} of "
                    f"{file.name}, written at "
                    f"{line.written_ms}, is not delivered"
                )
                return
