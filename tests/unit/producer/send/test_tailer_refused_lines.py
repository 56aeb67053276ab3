"""Lines that become dead letters are told at once: each source and reason when it begins, and under
other rules again.
"""

from __future__ import annotations

import re

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        r.getMessage()
        for r in caplog.records
        if "dead letters" in r.getMessage() and r.levelname == "WARNING"
    ]


def test_a_source_that_no_rules_declare_is_told_by_name_with_a_next_step(
    host: Host, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    recorder.reasons = lambda one: {"unknown_source": one.body.count(b"\n")}
    summary = host.drain(lines(60_000))
    (message,) = told(caplog)
    assert len(recorder.received) > 1, "one message, whatever the number of ranges"
    assert re.search(
        r"source app: .* unknown_source between bytes 0 and \d+ of /\S+/app\.log, with rules "
        r"revision rules-1",
        message,
    )
    assert "Check its name" in message
    assert "hourmark types apply" in message
    assert summary.dead_letter_reasons == {"app": {"unknown_source": 60_000}}
    assert (summary.events, summary.dead_letters) == (0, 60_000)


def test_each_reason_is_told_once_and_again_under_other_rules(
    host: Host, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    recorder.reasons = lambda one: {"wrong_field": 2, "future": 1}
    host.drain(lines(10))
    host.drain(lines(10, 10))
    recorder.rules = "rules-2"
    host.drain(lines(10, 20))
    of_first = [m for m in told(caplog) if "rules-1" in m]
    assert {
        reason
        for m in of_first
        for reason in ("wrong_field", "future")
        if f" {reason} between" in m
    } == {"wrong_field", "future"}
    assert sum("rules-2" in m for m in told(caplog)) == 2
    assert any(
        "hourmark dead-letters show --source app --reason wrong_field" in m for m in told(caplog)
    )


def test_a_service_that_says_no_reasons_is_understood(
    host: Host, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    """One of version 0.1 or another program."""
    assert host.drain(lines(10)).dead_letter_reasons == {}
    assert told(caplog) == []
