"""Files that were rotated after a user named them, and before the tailer first scanned them."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder

from hourmark.clock import SystemClock
from hourmark.config.groups import TailedSource
from hourmark.records.named_files import observe_files, save_named_files
from hourmark_producer.cli import tail
from hourmark_producer.report.summary import RunSummary


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hourmark_producer.files.waits.PACKING_S", 0.3)


@pytest.fixture
def narrow(host: Host) -> Host:
    """A host whose source matches app.log alone, with 1,007 lines in it."""
    host.settings["sources"] = [TailedSource(name="app", paths=[str(host.app)])]
    host.append(lines(1007))
    return host


@pytest.fixture
def named(narrow: Host, tmp_path: Path) -> Path:
    file = tmp_path / "pipeline" / "named-files.json"
    save_named_files(file, observe_files([narrow.app], SystemClock().now_ms()))
    return file


def register(host: Host, folder: Path, named: Path | None = None) -> dict[str, Any]:
    sources = f'[[tailer.sources]]\nname = "app"\npaths = ["{host.app}"]'
    config = host.configured(folder, sources)
    options = [] if named is None else ["--named", str(named)]
    done = CliRunner().invoke(tail, ["register", "--json", "--config", str(config), *options])
    assert done.exit_code == 0, (done.output, done.exception)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def check(recorder: Recorder, summary: RunSummary, *contents: bytes) -> None:
    sent = b"".join(one.body for one in recorder.stored).splitlines(keepends=True)
    assert sorted(sent) == sorted(
        line for content in contents for line in content.splitlines(keepends=True)
    )
    assert (summary.lost_bytes, summary.unknown_losses) == (0, 0)


def test_a_file_that_was_rotated_before_the_first_scan_is_delivered(
    narrow: Host, named: Path, recorder: Recorder, tmp_path: Path
) -> None:
    rotated = narrow.logs / "app.log.1"
    narrow.append(lines(3, 2000))
    narrow.app.rename(rotated)
    narrow.append(lines(5, 5000))
    found = register(narrow, tmp_path, named)
    assert found == {"rotated": {str(narrow.app): str(rotated)}, "missing": []}
    assert not recorder.stored, "nothing is sent yet"
    check(recorder, narrow.drain(), lines(1007), lines(3, 2000), lines(5, 5000))
    recorder.stored.clear()
    assert register(narrow, tmp_path, named) == {"rotated": {}, "missing": []}
    check(recorder, narrow.drain(lines(2, 9000)), lines(2, 9000))


def test_a_file_that_was_rotated_and_compressed_is_delivered(
    narrow: Host, named: Path, recorder: Recorder, tmp_path: Path
) -> None:
    old = narrow.logs / "app.log.2.gz"
    old.write_bytes(gzip.compress(lines(9, 9000)))
    os.utime(old, (1_700_000_000, 1_700_000_000))
    packed = narrow.logs / "app.log.1.gz"
    packed.write_bytes(gzip.compress(narrow.app.read_bytes()))
    shutil.copystat(narrow.app, packed)
    narrow.app.unlink()
    narrow.append(lines(5, 5000))
    found = register(narrow, tmp_path, named)
    assert found == {"rotated": {}, "missing": [str(narrow.app)]}
    check(recorder, narrow.drain(), lines(1007), lines(5, 5000))


def test_files_that_were_made_and_rotated_before_the_first_scan_are_delivered(
    narrow: Host, named: Path, recorder: Recorder, tmp_path: Path
) -> None:
    old = narrow.logs / "app.log.3"
    old.write_bytes(lines(9, 9000))
    os.utime(old, (1_700_000_000, 1_700_000_000))
    narrow.app.rename(narrow.logs / "app.log.2")
    narrow.append(lines(4, 3000))
    narrow.app.rename(narrow.logs / "app.log.1")
    narrow.append(lines(5, 5000))
    register(narrow, tmp_path, named)
    check(recorder, narrow.drain(), lines(1007), lines(4, 3000), lines(5, 5000))


def test_a_file_that_is_copied_and_truncated_before_the_first_scan_is_delivered(
    narrow: Host, named: Path, recorder: Recorder, tmp_path: Path
) -> None:
    shutil.copyfile(narrow.app, narrow.logs / "app.log.1")
    os.truncate(narrow.app, 0)
    narrow.append(lines(5, 5000))
    register(narrow, tmp_path, named)
    summary = narrow.drain()
    sent = b"".join(one.body for one in recorder.stored).splitlines(keepends=True)
    assert sorted(sent) == sorted((lines(1007) + lines(5, 5000)).splitlines(keepends=True))
    assert (summary.lost_bytes, summary.unknown_losses) == (0, 1), (
        "what was written between copy and truncation"
    )


def test_a_file_that_was_deleted_before_the_first_scan_is_lost_by_name(
    narrow: Host, named: Path, recorder: Recorder, tmp_path: Path
) -> None:
    size = narrow.app.stat().st_size
    narrow.app.unlink()
    narrow.append(lines(5, 5000))
    assert register(narrow, tmp_path, named)["missing"] == [str(narrow.app)]
    summary = narrow.drain()
    assert recorder.text() == lines(5, 5000)
    assert (summary.lost_bytes, summary.lost_files) == (size, [str(narrow.app)])


def test_a_file_that_is_rotated_after_it_was_registered_is_delivered(
    narrow: Host, recorder: Recorder, tmp_path: Path
) -> None:
    assert register(narrow, tmp_path) == {"rotated": {}, "missing": []}
    narrow.app.rename(narrow.logs / "app.log.1")
    check(recorder, narrow.drain(lines(5, 5000)), lines(1007), lines(5, 5000))


def test_a_source_that_was_scanned_before_ignores_earlier_observations(
    narrow: Host, named: Path, recorder: Recorder, tmp_path: Path
) -> None:
    narrow.drain()
    recorder.stored.clear()
    narrow.app.rename(narrow.logs / "app.log.1")
    register(narrow, tmp_path, named)
    check(recorder, narrow.drain(lines(5, 5000)), lines(5, 5000))
