"""`hourmark tail trace`: each answer, and those of a real checkpoint beside a tailer and after
it.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from click.testing import CliRunner
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder
from tests.support.waiting import wait_for

from hourmark.cli import root
from hourmark_producer.checkpoint.read_only import CheckpointedFile, UnacknowledgedRange
from hourmark_producer.report.trace import TraceStage, determine_stage, find_line_offset

LINE_BYTES = len(lines(1))


def known(*, offset: int, spooled: tuple[UnacknowledgedRange, ...] = ()) -> CheckpointedFile:
    return CheckpointedFile("f", "app", "/a", "/a", False, 1, offset, 100, 1, 2, spooled)


@pytest.mark.parametrize(
    ("file", "offset", "size", "skipped", "stage"),
    [
        (None, 0, 100, False, TraceStage.NOT_FOLLOWED),
        (known(offset=50), 49, 100, False, TraceStage.ACKNOWLEDGED),
        (known(offset=50), 49, 100, True, TraceStage.ACKNOWLEDGED_OR_SKIPPED),
        (known(offset=50), 50, 100, False, TraceStage.NOT_READ),
        (known(offset=50), 100, 100, False, TraceStage.NO_SUCH_LINE),
        (known(offset=50), None, 100, False, TraceStage.NO_SUCH_LINE),
        (known(offset=50), 10, 49, False, TraceStage.TRUNCATED),
        (
            known(
                offset=50, spooled=(UnacknowledgedRange(1, 20, 30), UnacknowledgedRange(1, 40, 50))
            ),
            19,
            100,
            False,
            TraceStage.ACKNOWLEDGED,
        ),
        (
            known(
                offset=50, spooled=(UnacknowledgedRange(1, 20, 30), UnacknowledgedRange(1, 40, 50))
            ),
            20,
            100,
            True,
            TraceStage.SPOOLED,
        ),
        (
            known(
                offset=50, spooled=(UnacknowledgedRange(1, 20, 30), UnacknowledgedRange(1, 40, 50))
            ),
            50,
            100,
            False,
            TraceStage.NOT_READ,
        ),
        (
            known(offset=50, spooled=(UnacknowledgedRange(0, 20, 50),)),
            20,
            100,
            False,
            TraceStage.ACKNOWLEDGED,
        ),  # of before a truncation
    ],
)
def test_a_place_decides(
    file: CheckpointedFile | None, offset: int | None, size: int, skipped: bool, stage: TraceStage
) -> None:
    assert determine_stage(file, offset, size, skipped=skipped) is stage


@pytest.mark.parametrize("block", [1, 2, 3, 5, 100])
def test_lines_begin_where_splitting_says(block: int) -> None:
    for content in (b"", b"\n", b"a", b"a\n", b"a\nbc\n\nd", b"a\nbc\n\nd\n", b"\n\n\n"):
        begins = [0]
        for line in content.splitlines(keepends=True):
            begins.append(begins[-1] + len(line))
        expected = [*begins[:-1], None, None]
        assert [
            find_line_offset(io.BytesIO(content), n, block) for n in range(1, len(expected) + 1)
        ] == expected, content


def trace(host: Host, tmp_path: Path, *words: str) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(
        root, ["tail", "trace", "--json", "--config", str(host.configured(tmp_path)), *words]
    )
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, json.loads(result.stdout)


def test_after_a_tailer_a_rotated_file_is_known_by_any_name(
    host: Host, recorder: Recorder, tmp_path: Path
) -> None:
    host.drain(lines(10))
    host.append(lines(1, start=10))
    state = {path.name for path in host.state.iterdir()}
    moved = host.app.rename(tmp_path / "elsewhere:7")
    code, told = trace(host, tmp_path, f"{moved}:10")
    sent = recorder.stored[0].range
    assert (code, told["stage"], told["offset"]) == (0, "acknowledged", 9 * LINE_BYTES)
    assert (told["host_id"], told["file_id"], told["generation"]) == (
        sent.host_id,
        sent.file_id,
        sent.generation,
    )
    assert (
        trace(host, tmp_path, str(moved))[1]["offset"] == 0
    )  # a file of that name, not its seventh line
    assert trace(host, tmp_path, f"{moved}:11")[1]["stage"] == "not_read"
    assert trace(host, tmp_path, str(moved), "--offset", "0")[1]["stage"] == "acknowledged"
    code, told = trace(host, tmp_path, f"{moved}:12")
    assert (code, told["stage"]) == (1, "no_such_line")
    other = tmp_path / "other.log"
    other.write_bytes(lines(1))
    code, told = trace(host, tmp_path, str(other))
    assert (code, told["stage"]) == (1, "not_followed")
    assert {path.name for path in host.state.iterdir()} == state


def test_a_file_that_was_truncated_and_grew_again_was_not_read(host: Host, tmp_path: Path) -> None:
    host.drain(lines(10))
    host.app.write_bytes(lines(20, start=500))
    code, told = trace(host, tmp_path, f"{host.app}:3")
    assert (code, told["stage"]) == (1, "truncated")


def test_beside_a_tailer_that_no_service_answers_a_line_is_spooled(
    host: Host, recorder: Recorder, tmp_path: Path
) -> None:
    recorder.behaviour = lambda _: 503
    with host.running(lines(3)):
        wait_for(
            lambda: trace(host, tmp_path, f"{host.app}:2")[1]["stage"] == "spooled", "it is spooled"
        )
    assert trace(host, tmp_path, f"{host.app}:3")[1]["stage"] == "spooled"


def test_a_file_that_is_not_there_is_told_as_wrong_use(host: Host, tmp_path: Path) -> None:
    result = CliRunner().invoke(
        root,
        ["tail", "trace", "--config", str(host.configured(tmp_path)), str(tmp_path / "none:3")],
    )
    assert "cannot be read" in str(result.exception)


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("form", PACKERS)
def test_a_line_of_a_packed_file_that_is_known_is_traced_by_content(
    form: str, host: Host, tmp_path: Path
) -> None:
    host.drain(lines(100))
    host.append(lines(2, start=100))
    packed = tmp_path / f"elsewhere.{form}"
    packed.write_bytes(PACKERS[form](host.app.read_bytes()))
    for number, stage, code in (
        (1, "acknowledged", 0),
        (100, "acknowledged", 0),
        (101, "not_read", 0),
        (103, "no_such_line", 1),
    ):
        found, told = trace(host, tmp_path, f"{packed}:{number}")
        assert (found, told["stage"]) == (code, stage), number
    assert (
        trace(host, tmp_path, str(packed), "--offset", str(LINE_BYTES))[1]["offset"] == LINE_BYTES
    )
    whole = trace(host, tmp_path, f"{host.app}:100")[1]
    assert trace(host, tmp_path, f"{packed}:100")[1] == whole | {"path": str(packed)}


def test_a_packed_file_that_is_not_known_is_asked_for_by_the_path_it_was_read_under(
    host: Host, tmp_path: Path
) -> None:
    host.drain(lines(100))
    packed = host.app.with_name("app.log-20261120.3.gz")
    packed.write_bytes(gzip.compress(lines(100, start=500)))
    code, told = trace(host, tmp_path, f"{packed}:2")
    assert (code, told["stage"], told["offset"], told["file_id"]) == (1, "packed", LINE_BYTES, None)
    assert (
        f"`hourmark trace {told['host_id']}:{packed.parent}/app.log:{LINE_BYTES}`" in told["next"]
    )
    assert trace(host, tmp_path, f"{packed}:101")[1]["stage"] == "no_such_line"


def test_a_packed_file_that_is_cut_off_is_told_as_wrong_use(host: Host, tmp_path: Path) -> None:
    host.drain(lines(1))
    packed = tmp_path / "cut.gz"
    packed.write_bytes(gzip.compress(lines(100))[:-9])
    result = CliRunner().invoke(
        root, ["tail", "trace", "--config", str(host.configured(tmp_path)), str(packed)]
    )
    assert "cannot be unpacked" in str(result.exception)
