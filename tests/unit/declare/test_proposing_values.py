"""`hourmark init` finds numbers, hosts and records by what nearly all lines have in common."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from tests.support.log_formats.model import WRITTEN_MS, day, message, pick

from hourmark_declare.proposing.file_sample import read_sample
from hourmark_declare.proposing.hosts import (
    choose_host_key,
    first_host_key,
    host_rank,
    is_constant_host,
)
from hourmark_declare.proposing.lines.message_keys import message_pattern
from hourmark_declare.proposing.lines.message_shape import infer_shape
from hourmark_declare.proposing.selection import Proposal, propose

RECORDS: Final = 60
MARK: Final = b"\xef\xbb\xbf"


def proposal(folder: Path, record: Callable[[int], str], mark: bytes = b"") -> Proposal:
    log = folder / "a.log"
    log.write_bytes(mark + "\n".join(map(record, range(RECORDS))).encode())
    sample = read_sample(log)._replace(written_ms=WRITTEN_MS)
    return propose(sample, "app", zone="UTC", host="tailer-1")


def test_numbers_between_the_same_words_are_captured_with_names() -> None:
    texts = [f"generated {500 + n} bytes in {n}.5 msecs (HTTP/1.1 {200 + n})" for n in range(20)]
    shape = infer_shape(texts, set())
    assert shape is not None
    assert shape.types == {"bytes": "long", "duration": "double", "number": "long"}
    found = re.fullmatch(shape.pattern, texts[3])
    assert found is not None
    assert (found["bytes"], found["duration"], found["number"]) == ("503", "3.5", "203")


def test_numbers_are_captured_around_words_that_differ() -> None:
    texts = [f"took {n} ms: {'a b ' * (n % 3)}end of {7 * n}" for n in range(20)]
    shape = infer_shape(texts, set())
    assert shape is not None
    assert [*shape.types.values()] == ["long", "long"]
    assert all(re.fullmatch(shape.pattern, text) for text in texts)


@pytest.mark.parametrize(
    "texts",
    [
        [message(n) for n in range(20)],
        [f"connection from 10.0.0.{n}:53" for n in range(20)],
        [f"version 1.{n}.{n} of {n:08x}-{n:04x}" for n in range(20)],
        [f"item 00{n}" for n in range(10, 20)],
        ["one 1", "two 2"],
        [],
    ],
    ids=["different", "address", "version", "zeros", "few", "none"],
)
def test_other_texts_have_no_numbers(texts: list[str]) -> None:
    assert infer_shape(texts, set()) is None


def test_a_message_of_another_shape_is_kept_without_numbers(tmp_path: Path) -> None:
    found = proposal(
        tmp_path, lambda n: f"{day(n)} {'sent 12 bytes' if n != 7 else 'nothing was sent'}"
    )
    assert (found.records, found.fitting) == (RECORDS, RECORDS)
    assert found.examples[0].fields == {"bytes": 12, "message": "sent 12 bytes"}


def test_names_of_fields_are_not_taken_twice() -> None:
    pattern, types = message_pattern(
        [f"pid 4711 has {n} of {n} files" for n in range(20)], {"pid"}, multiline=False
    )
    assert re.compile(pattern)
    assert not types.keys() & {"pid", "message", "host"}


@pytest.mark.parametrize(
    ("name", "is_host"),
    [
        ("hostIdentifier", True),
        ("server-hostname", True),
        ("Computer Name", True),
        ("s-computername", True),
        ("agentHost", True),
        ("client-hostname", False),
        ("cs(Host)", False),
        ("remote_host", False),
        ("ghost", False),
        ("hosted", False),
    ],
)
def test_names_that_indicate_the_host_of_a_line(name: str, is_host: bool) -> None:
    assert (host_rank(name) is not None) == is_host


def test_of_a_request_the_host_is_another() -> None:
    assert first_host_key(["method", "host", "uri"]) is None
    assert first_host_key(["method", "host", "hostname"]) == "hostname"
    assert first_host_key(["client-hostname", "server-hostname"]) == "server-hostname"
    assert choose_host_key({"host": ["web-1"], "path": ["/"]}, 1) is None


def test_a_key_with_numbers_or_too_few_values_is_no_host() -> None:
    assert choose_host_key({"host": ["1", "2"]}, 2) is None
    assert choose_host_key({"host": ["a"]}, 10) is None
    assert choose_host_key({"host": ["-", "-"]}, 2) is None
    assert choose_host_key({}, 0) is None


def test_a_name_beside_differing_hardware_addresses_is_that_of_a_client() -> None:
    names, addresses = ["pc-1", "pc-2"], ["02:00:00:00:00:01", "02:00:00:00:00:02"]
    assert choose_host_key({"Host Name": names, "Chassis": addresses}, 2) is None
    assert choose_host_key({"Host Name": names, "MAC": ["020000000001", "02000000000A"]}, 2) is None
    assert (
        choose_host_key({"Host Name": names, "MAC": addresses, "Server": ["a", "a"]}, 2) == "Server"
    )
    assert choose_host_key({"ComputerName": names, "MAC": addresses}, 2) == "ComputerName"
    assert choose_host_key({"host": names, "id": ["02000000000a", "02000000000b"]}, 2) == "host"
    assert choose_host_key({"host": ["pc-1"] * 2, "MAC": addresses}, 2) == "host"
    assert choose_host_key({"host": names, "tags": [["a"], {"b": 1}]}, 2) == "host"


def test_of_two_keys_the_one_whose_values_repeat_is_the_host() -> None:
    names = [f"pc-{n}" for n in range(20)]
    assert choose_host_key({"Host Name": names, "Server": ["a", "b"] * 10}, 20) == "Server"
    assert choose_host_key({"Host Name": names}, 20) == "Host Name"


@pytest.mark.parametrize("value", ["NPS-1", "db-instance-1", "prod-web-03.example.com"])
def test_one_value_in_all_rows_may_be_the_host(value: str) -> None:
    assert is_constant_host([value] * 10)
    assert not is_constant_host([value] * 9)


@pytest.mark.parametrize("value", ["UTF-8", "SHA-256", "thread-1", "seg-1", "IAS", "4-5", "x86_64"])
def test_a_constant_of_another_kind_is_no_host(value: str) -> None:
    assert not is_constant_host([value] * 10)


def test_a_host_that_is_named_twice_in_a_message_did_not_write_it(tmp_path: Path) -> None:
    found = proposal(
        tmp_path, lambda n: f"{day(n)} {message(n)} (host=pc-{n % 3}) (host=srv-{n % 2}) n={n} m=1"
    )
    assert found.examples[0].host == "tailer-1"


def test_records_may_begin_before_the_line_with_the_time(tmp_path: Path) -> None:
    found = proposal(tmp_path, lambda n: f"** Alert {n}: x\n{day(n)} sw-1->/var/log\nRule: {n}")
    assert found.candidate.record_start == r"^\*\* Alert "
    assert (found.records, found.fitting) == (RECORDS, RECORDS)
    assert found.oldest == "2026-11-21T10:00:00.000Z"


def test_a_line_that_ends_records_does_not_begin_them(tmp_path: Path) -> None:
    found = proposal(tmp_path, lambda n: f"{day(n)} {message(n)}\n-----")
    assert found.candidate.record_start.startswith(r"^\d{4}-")
    assert found.records == RECORDS


def test_rows_with_line_feeds_in_quotes_are_records(tmp_path: Path) -> None:
    def row(n: int) -> str:
        text = pick(n, '"select 1,\n  ""2"""', "", '"one line"')
        return f"{day(n)} UTC,ann,{n},{pick(n, 'LOG', 'ERROR')},{text}"

    found = proposal(tmp_path, row)
    assert (found.records, found.fitting) == (RECORDS, RECORDS)
    assert found.candidate.record_start
    assert found.examples[0].fields["level"] == "LOG"


def test_a_time_behind_a_differing_number_of_words_joins_no_lines(tmp_path: Path) -> None:
    found = proposal(tmp_path, lambda n: f"{pick(n, 'main', 'a b c')} {day(n)} {message(n)}")
    assert not found.candidate.record_start
    assert (found.records, found.fitting) == (RECORDS, RECORDS)


@pytest.mark.parametrize(
    "record",
    [
        lambda n: f"{day(n)} {pick(n, 'INFO', 'WARN')} {message(n)}",
        lambda n: f"{day(n)}|{n}|{pick(n, 'INFO', 'WARN')}",
        lambda n: f"{day(n)} {message(n)}\n  more",
    ],
    ids=["lines", "table", "records"],
)
def test_a_byte_order_mark_is_no_part_of_the_first_record(
    tmp_path: Path, record: Callable[[int], str]
) -> None:
    plain, marked = proposal(tmp_path, record), proposal(tmp_path, record, MARK)
    assert marked.fitting == plain.fitting == RECORDS
    assert [one.fields for one in marked.examples] == [one.fields for one in plain.examples]


def test_control_characters_may_delimit_columns(tmp_path: Path) -> None:
    found = proposal(tmp_path, lambda n: f"{day(n)}\x01web-{n % 2}\x01{n}\x01{pick(n, 'a', 'b')}")
    assert found.fitting == RECORDS
    assert "\x01" not in found.candidate.line["pattern"]
    assert found.examples[0].host == "web-0"


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/Argentina/Buenos_Aires"])
def test_times_are_in_the_zone_that_follows_them(zone: str, tmp_path: Path) -> None:
    found = proposal(tmp_path, lambda n: f"[21-Nov-2026 06:00:{n:02} {zone}] {message(n)}")
    assert found.candidate.zone == zone
    assert found.candidate.line["time_format"] == f"%d-%b-%Y %H:%M:%S {zone}"
    assert [field["name"] for field in found.candidate.fields] == ["message"]


def test_a_path_after_a_time_is_no_zone(tmp_path: Path) -> None:
    found = proposal(tmp_path, lambda n: f"2026-11-21 11:00:{n:02} Europe/Nowhere {message(n)}")
    assert found.candidate.zone == ""
