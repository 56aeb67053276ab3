"""Adversary: `run --once` with its marker, outcomes and empty ledgers; nothing is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.clock import FakeClock

from hourmark.config.loading import Config
from hourmark_infra.running.cli import describe_outcome
from hourmark_infra.running.run import Run, RunOutcome

SUMMARY: dict[str, Any] = {
    "ranges": 1,
    "dead_letter_reasons": {},
    "lost_bytes": 0,
    "unknown_losses": 0,
    "pending_bytes": 0,
    "unterminated": {},
}


class Stubbed(Run):
    """A run in which everything that starts a process is replaced."""

    def __init__(self, home: Path, file: Path, **tailed: Any) -> None:
        self.said: list[str] = []
        super().__init__(home, file, FakeClock(), self.said.append)
        self.tailed = SUMMARY | tailed
        self.open_rows: list[dict[str, Any]] = [
            {"type": "a", "hour": "2026-11-21T05:00", "state": "open", "waits_for": "x"}
        ]
        self.closed_rows: list[dict[str, Any]] = []
        self.fails_while_waiting = False
        self.started: list[str] = []
        self._supervisor.start = self.started.extend  # type: ignore[method-assign]

    def _prepare(self) -> Config:
        (self._home / "run").mkdir(parents=True, exist_ok=True)
        config = Config()
        return config.model_copy(
            update={"parsing": config.parsing.model_copy(update={"bucket_seconds": 60})}
        )

    def _start_components(self, *_: object) -> None: ...  # type: ignore[override]

    def _drain_tailer(self) -> Any:
        return self.tailed

    def _wait_for_closed_buckets(self, *_: object) -> None:  # type: ignore[override]
        if self.fails_while_waiting:
            raise KeyboardInterrupt

    def _query_json(self, *arguments: str) -> Any:
        return self.open_rows if "open" in arguments else self.closed_rows


def test_what_another_configuration_delivered_is_not_taken_for_closed(tmp_path: Path) -> None:
    one, other = tmp_path / "one.toml", tmp_path / "other.toml"
    interrupted = Stubbed(tmp_path, one)
    interrupted.fails_while_waiting = True
    with pytest.raises(KeyboardInterrupt):
        interrupted.run_once()
    Stubbed(tmp_path, other).run_once()
    again = Stubbed(tmp_path, one, ranges=0)
    again.run_once()
    assert not any("there is nothing new" in said for said in again.said)
    assert again.started == ["etl"]


def test_a_run_that_lost_bytes_does_not_say_that_every_line_is_in_a_bucket() -> None:
    tailed = SUMMARY | {"lost_bytes": 5000, "unknown_losses": 1}
    said = "\n".join(describe_outcome(RunOutcome(7, tailed, [], Path("c.toml"))))
    assert "lost" in said, said


def test_a_ledger_without_types(tmp_path: Path) -> None:
    run = Stubbed(tmp_path, tmp_path / "one.toml")
    run.open_rows = []
    assert run.run_once().buckets == []


def test_a_type_that_came_while_the_lines_were_delivered(tmp_path: Path) -> None:
    """As by `hourmark types apply` of another configuration on the same ledger."""
    run = Stubbed(tmp_path, tmp_path / "one.toml")
    run.closed_rows = [
        {"type": "b", "hour": "2026-11-21T05:00", "state": "closed", "grade": "proved", "events": 1}
    ]
    run.run_once()


def test_an_event_ahead_of_the_clock_is_awaited_or_told(tmp_path: Path) -> None:
    """A line whose time is up to `parsing.future_seconds` (900 s) ahead is an event of its own
    minute, which ends after the one in which delivery ended.
    """
    from tests.support.service.examples import NOW_MS, decoded, parsed, syslog

    import datetime as dt

    from hourmark.records.hours import Hour

    ahead = dt.datetime.fromtimestamp(NOW_MS / 1000 + 600, dt.UTC)
    (record,) = parsed(syslog(time=f"{ahead:%Y-%m-%dT%H:%M:%SZ}"), "app").records
    assert record.event_type != "dead-letters", decoded(record)
    own = Hour.containing(int(ahead.timestamp() * 1000), 60)

    awaited: list[Hour] = []

    class Waiting(Stubbed):
        def _wait_for_closed_buckets(self, last: Hour, _: float) -> None:  # type: ignore[override]
            awaited.append(last)

    run = Waiting(tmp_path, tmp_path / "one.toml")
    run._clock = type("Fixed", (FakeClock,), {"now_ms": lambda _: NOW_MS})()  # type: ignore[assignment]
    outcome = run.run_once()
    assert awaited[-1] >= own or outcome.open_hour, f"waited up to {awaited[-1]}, it is in {own}"
