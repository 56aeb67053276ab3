"""A reread never sends other bytes under an old place, whatever was truncated before."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder

from hourmark.errors import ConfigError, UsageError
from hourmark_producer.checkpoint import generations
from hourmark_producer.checkpoint.generations import FILES_MAX, Generations


def places(recorder: Recorder) -> dict[tuple[str, int], bytes]:
    """Bytes by file and generation, of all that was sent; asserts that no place ever had other
    bytes.
    """
    whole: dict[tuple[str, int], bytes] = {}
    for one in recorder.received:
        sent, key = one.range, (one.range.file_id, one.range.generation)
        before = whole.get(key, b"")
        assert len(before) >= sent.start
        common = before[sent.start : sent.end]
        assert one.body.startswith(common), (
            f"other bytes in generation {sent.generation} from {sent.start}"
        )
        whole[key] = before[: sent.start] + one.body + before[sent.end :]
    return whole


def lose_checkpoint(host: Host) -> None:
    for path in host.state.glob("checkpoint.sqlite*"):
        path.unlink()


def truncate_and_write(host: Host, content: bytes) -> None:
    os.truncate(host.app, 0)
    host.append(content)


def test_a_reread_after_a_truncation_is_the_same_generation_again(
    host: Host, recorder: Recorder
) -> None:
    host.drain(lines(10))
    truncate_and_write(host, lines(5, 100))
    host.drain()
    lose_checkpoint(host)
    host.drain(reread=True)
    assert sorted(places(recorder).items(), key=lambda one: one[0][1])[1][1] == lines(5, 100)
    assert [one.range.generation for one in recorder.received] == [0, 1, 1]


@pytest.mark.parametrize("truncated_before", [False, True])
def test_a_file_truncated_after_its_last_range_begins_another_generation(
    host: Host, recorder: Recorder, truncated_before: bool
) -> None:
    host.drain(lines(10))
    if truncated_before:
        truncate_and_write(host, lines(5, 100))
        host.drain()
    lose_checkpoint(host)
    truncate_and_write(host, lines(20, 200))
    host.drain(reread=True)
    assert places(recorder)[recorder.received[0].range.file_id, 1 + truncated_before] == lines(
        20, 200
    )


def test_the_second_folder_does_where_the_first_is_gone(host: Host, recorder: Recorder) -> None:
    host.settings["second_state_dir"] = host.state.with_name("second")
    first = host.drain(lines(10)).host_id
    truncate_and_write(host, lines(5, 100))
    host.drain()
    shutil.rmtree(host.state)
    with pytest.raises(UsageError, match=r"second names it.*--reread"):
        host.drain()
    assert host.drain(reread=True).host_id == first
    assert len({one.range.host_id for one in recorder.received}) == 1
    assert set(places(recorder).values()) == {lines(10), lines(5, 100)}
    assert host.drain().host_id == first


def test_a_second_folder_of_another_host_is_refused(host: Host) -> None:
    host.settings["second_state_dir"] = host.state.with_name("second")
    host.drain()
    shutil.rmtree(host.state)
    host.settings["second_state_dir"] = None
    host.drain()
    host.settings["second_state_dir"] = host.state.with_name("second")
    with pytest.raises(ConfigError, match="belongs to host id"):
        host.drain()


def test_a_torn_line_is_passed_over_and_the_latest_files_are_kept(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourmark_producer.checkpoint.generations.FILES_MAX", 3)
    host.state.mkdir()
    made = Generations([host.state], "1" * 32)
    for number in range(5):
        made.record_generation(f"{number:032x}", number, b"head")
    with (host.state / "generations").open("ab") as file:
        file.write(b'\n["000')
    again = Generations([host.state], "1" * 32)
    assert [
        again.find_generation(f"{number:032x}", b"head and more") for number in range(5)
    ] == list(range(5))
    assert (
        again.find_generation(f"{4:032x}", b"hea") == 5
        and again.find_generation(f"{4:032x}", b"other") == 5
    )
    third = Generations([host.state], "1" * 32)
    assert [third.find_generation(f"{number:032x}", b"head") for number in range(5)] == [
        0,
        0,
        2,
        3,
        4,
    ]
    assert FILES_MAX >= 10_000


def test_a_file_of_generations_does_not_grow_without_bound_while_a_tailer_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generations, "FILES_MAX", 50)
    noted = Generations([tmp_path], "host-1")
    for number in range(1000):
        noted.record_generation(f"file-{number}", 0, b"line %d" % number)
    assert (tmp_path / "generations").read_bytes().count(b"\n") <= 150
    assert (
        noted.find_generation("file-999", b"other") == 1
        and noted.find_generation("file-0", b"other") == 0
    ), "the latest are known"
    again = Generations([tmp_path], "host-1")
    assert (
        again.find_generation("file-999", b"line 999") == 0
        and again.find_generation("file-999", b"other") == 1
    )
