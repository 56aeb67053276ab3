"""copytruncate again and again while the service is away: what was seen, and not read, is read in
the copies, and is no loss.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder, recording
from tests.support.waiting import wait_for

from hourmark_producer.tailer import Tailer

HOURS = 4


def _look(tailer: Tailer) -> None:
    scans = tailer.scanner.scans
    wait_for(lambda: tailer.scanner.scans > scans + 2, "it is looked at again")


def _rotate(host: Host, *, packed: bool) -> None:
    """As logrotate does; `packed`: with `delaycompress`."""
    for number in range(HOURS, 0, -1):
        for ending in ("", ".gz"):
            older = host.logs / f"app.log.{number}{ending}"
            if older.exists():
                older.rename(host.logs / f"app.log.{number + 1}{ending}")
    if packed and (last := host.logs / "app.log.2").exists():
        (host.logs / "app.log.2.gz").write_bytes(gzip.compress(last.read_bytes()))
        last.unlink()
    (host.logs / "app.log.1").write_bytes(host.app.read_bytes())
    host.app.write_bytes(b"")


def _hour(number: int) -> bytes:
    return lines(1000, 1000 * number)


def _live_through(
    host: Host, recorder: Recorder, hours: range, *, packed: bool, until: bytes = b""
) -> None:
    """One run; where it sees the service come back, until all of that is there."""
    with host.running() as tailer:
        _look(tailer)
        for hour in hours:
            host.append(_hour(hour))
            _look(tailer)
            _rotate(host, packed=packed)
            _look(tailer)
        if until:
            recorder.behaviour = lambda _: 200
            recorder.wait_text(until)
            wait_for(
                lambda: recorder.last.pending_bytes == 0 and tailer.claims.are_caught_up(),
                "all is read",
            )


@pytest.mark.slow
@pytest.mark.parametrize("paths", ["app.log*", "app.log"], ids=["wide", "narrow"])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("runs", ["one", "two", "many"])
def test_what_the_copies_hold_is_no_loss(
    tmp_path: Path, paths: str, runs: str, *, packed: bool
) -> None:
    with recording() as recorder:
        host = Host(tmp_path, recorder.url)
        source = host.settings["sources"][0]
        host.settings["sources"] = [source.model_copy(update={"paths": [str(host.logs / paths)]})]
        host.drain(lines(100))
        recorder.behaviour = lambda _: 503
        written = lines(100) + b"".join(map(_hour, range(1, HOURS)))
        if runs == "many":
            for hour in range(1, HOURS):
                _live_through(host, recorder, range(hour, hour + 1), packed=packed)
        else:
            _live_through(
                host,
                recorder,
                range(1, HOURS),
                packed=packed,
                until=written if runs == "one" else b"",
            )
        recorder.behaviour = lambda _: 200
        summary = host.drain(_hour(HOURS))
    assert sorted(recorder.text().splitlines()) == sorted((written + _hour(HOURS)).splitlines())
    assert summary.lost_bytes == 0
    assert summary.unknown_losses > 0, "what was written between a look and a truncation"
