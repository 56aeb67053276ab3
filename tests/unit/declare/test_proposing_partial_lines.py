"""`hourmark init` finds parts of lines around, and behind, those that only some lines have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.log_formats.model import WRITTEN_MS, day, message, pick

from hourmark_declare.line_trial import LineTrial, ReadContext
from hourmark_declare.proposing.file_sample import read_sample
from hourmark_declare.proposing.selection import Proposal, propose

pytestmark = pytest.mark.slow

RECORDS: Final = 120
CONTEXT: Final = ReadContext(observed_at_ms=WRITTEN_MS, zone="UTC", host="tailer-1")
TRACE: Final = "\nshop.Failure: no cart\n\tat shop.Cart.total(Cart.java:81)"


def proposal(folder: Path, line: Callable[[int], str], newline: str = "\n") -> Proposal:
    log = folder / "a.log"
    log.write_text("\n".join(map(line, range(RECORDS))) + "\n", newline=newline)
    sample = read_sample(log)._replace(written_ms=WRITTEN_MS)
    return propose(sample, "app", zone="UTC", host="tailer-1")


def fields(found: Proposal, number: int) -> dict[str, Any]:
    return {**found.examples[number].fields}


def level(n: int) -> str:
    return pick(n, "INFO", "WARN", "ERROR")


def program(n: int) -> str:
    return pick(n, "orders", "billing", "mail")


@pytest.mark.parametrize("every", [2, 7, 30])
@pytest.mark.parametrize(
    "form",
    [
        "[{}] ",
        "({}) ",
        "<{}> ",
        "[{}]: ",
        "({}): ",
        "{{{}}} ",
        "[tx {}] ",
        "(tx {}) ",
        "[tx: {}] ",
        "<tx={}> ",
    ],
)
def test_an_optional_bracket_does_not_hide_the_program(
    tmp_path: Path, form: str, every: int
) -> None:
    def line(n: int) -> str:
        optional = form.format(f"a-{n}f") if n % every == 1 else ""
        return f"{day(n)} {level(n)} {optional}{program(n)}: {message(n)}"

    found = proposal(tmp_path, line)
    name = "tx" if "tx" in form else "context"
    same = {"component": "orders", "message": "started", "level": "INFO"}
    assert fields(found, 0) == {**same, name: None}
    assert fields(found, 1)[name] == "a-1f"
    assert fields(found, 1)["component"] == program(1)


def test_a_number_in_an_optional_bracket_may_be_a_text_later(tmp_path: Path) -> None:
    def line(n: int) -> str:
        return f"{day(n)} {level(n)} {f'[{n}] ' if n % 2 else ''}{program(n)}: {message(n)}"

    found = proposal(tmp_path, line)
    assert [fields(found, n)["pid"] for n in range(2)] == [None, 1]
    trial = LineTrial.from_declarations(found.candidate.without_catch_all.to_declarations("app"))
    later = trial.parse_records("app", [b"2026-11-21 10:00:00 INFO [a] orders: started"], CONTEXT)
    assert [one.is_event for one in later] == [True]


@pytest.mark.parametrize("closed", ["", " "])
def test_an_optional_bracket_may_follow_another_without_a_space(
    tmp_path: Path, closed: str
) -> None:
    def line(n: int) -> str:
        optional = f"{closed}[TX-{n:05x}]" if n % 3 else ""
        return f"[{day(n)}] {level(n)}[{4711 + n}]{optional} {program(n)}.c: {message(n)}"

    found = proposal(tmp_path, line)
    assert [fields(found, n)["context"] for n in range(2)] == [None, "TX-00001"]
    assert [fields(found, n)["caller"] for n in range(2)] == ["orders.c", f"{program(1)}.c"]
    assert [fields(found, n)["pid"] for n in range(2)] == [4711, 4712]


@pytest.mark.parametrize("form", ["{}[{}] {}", "{}{}: {}", "{}<{}> {}"])
def test_a_bracket_that_all_lines_have_may_follow_an_optional_one(
    tmp_path: Path, form: str
) -> None:
    def line(n: int) -> str:
        optional = f"(tx-{n}f) " if n % 2 else ""
        return f"{day(n)} {level(n)} {form.format(optional, program(n), message(n))}"

    found = proposal(tmp_path, line)
    assert [fields(found, n)["context"] for n in range(3)] == [None, "tx-1f", None]
    assert [fields(found, n)["component"] for n in range(3)] == [program(n) for n in range(3)]
    assert [fields(found, n)["message"] for n in range(3)] == [message(n) for n in range(3)]


def test_optional_pairs_do_not_hide_the_program(tmp_path: Path) -> None:
    def line(n: int) -> str:
        optional = f"request={n}f " if n % 2 else ""
        return f"{day(n)} {level(n)} {optional}shop::{program(n)}: {message(n)}"

    found = proposal(tmp_path, line)
    assert [fields(found, n)["request"] for n in range(2)] == [None, "1f"]
    assert [fields(found, n)["logger"] for n in range(2)] == ["shop::orders", f"shop::{program(1)}"]


def test_a_message_in_brackets_that_only_some_lines_have_stays_the_message(tmp_path: Path) -> None:
    found = proposal(
        tmp_path,
        lambda n: f"{day(n)} {level(n)} " + (f"(mail of user {n} sent)" if n % 3 else message(n)),
    )
    assert fields(found, 1) == {"level": "WARN", "message": "(mail of user 1 sent)"}


def test_spans_with_values_do_not_hide_the_target(tmp_path: Path) -> None:
    def line(n: int) -> str:
        spans = pick(n, "", f'job{{id={n} kind="a b"}}: ', f"job{{id={n}}}: mail: ")
        return f"{day(n)} {level(n)} {spans}shop::{program(n)}: {message(n)}"

    found = proposal(tmp_path, line)
    assert fields(found, 0) == {
        "level": "INFO",
        "spans": None,
        "logger": "shop::orders",
        "message": "started",
    }
    assert [fields(found, n)["spans"] for n in (1, 2)] == [
        'job{id=1 kind="a b"}',
        "job{id=2}: mail",
    ]
    assert fields(found, 2)["logger"] == f"shop::{program(2)}"


@pytest.mark.parametrize("sign", [" | ", "|", ";", "\t"])
@pytest.mark.parametrize("trace", ["", TRACE])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_columns_behind_the_message_are_fields(
    tmp_path: Path, sign: str, trace: str, newline: str
) -> None:
    def line(n: int) -> str:
        text = f"{message(n)} of {n}{sign}{sign}" if n % 9 == 1 else f"{message(n)} now"
        columns = day(n), level(n), text, f"shop.{program(n)}.Main", f"pool-1-thread-{n}"
        return sign.join(columns) + (trace if n % 5 == 2 else "")

    found = proposal(tmp_path, line, newline)
    same = {"level": "INFO", "message": "started now", "logger": "shop.orders.Main"}
    details = {"details": None} if trace else {}
    assert fields(found, 0) == {**same, "thread": "pool-1-thread-0", **details}
    assert fields(found, 1)["message"].rstrip(sign) == f"{message(1)} of 1"
    assert fields(found, 2)["thread"] == "pool-1-thread-2"
    if trace:
        assert fields(found, 2)["details"] == TRACE[1:].replace("\n", newline)


def test_a_position_in_source_code_is_found_before_any_message(tmp_path: Path) -> None:
    found = proposal(
        tmp_path, lambda n: f"{day(n)} [{level(n)}] {program(n)}.c:{10 + n} {message(n)}"
    )
    assert fields(found, 0) == {"level": "INFO", "caller": "orders.c:10", "message": "started"}


def test_words_behind_bars_in_messages_are_no_columns(tmp_path: Path) -> None:
    found = proposal(tmp_path, lambda n: f"{day(n)} {level(n)} {message(n)} | retry of user {n}")
    first = fields(found, 0)
    assert first == {"level": "INFO", "user": 0, "message": "started | retry of user 0"}


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_keys_in_brackets_are_fields(tmp_path: Path, newline: str) -> None:
    def line(n: int) -> str:
        group = pick(n, "Misc activity", "(none)")
        return f'{day(n)} [!!] {message(n)} [!!] [Group: {group}] [Priority: {n % 3}] [id "{n}"]'

    found = proposal(tmp_path, line, newline)
    first = fields(found, 0)
    assert first.pop("message") == 'started [!!] [Group: Misc activity] [Priority: 0] [id "0"]'
    assert first == {"group": "Misc activity", "priority": 0, "id": 0}


def test_numbers_in_the_first_words_of_messages_leave_the_cr_out(tmp_path: Path) -> None:
    found = proposal(
        tmp_path, lambda n: f"{day(n)} {level(n)} took {n} ms, then {message(n)}", "\r\n"
    )
    first = fields(found, 0)
    assert first == {"level": "INFO", "duration": 0, "message": "took 0 ms, then started"}


def test_a_message_without_the_keys_in_brackets_is_kept(tmp_path: Path) -> None:
    found = proposal(
        tmp_path, lambda n: f"{day(n)} {level(n)} {message(n)}" + f" [code: {n}]" * (n != 2)
    )
    assert found.fitting == RECORDS
    assert [fields(found, n)["code"] for n in range(3)] == [0, 1, None]


@pytest.mark.parametrize("host", ["app-1.example.net", "app1", "mq"])
def test_the_host_of_a_node_name_is_the_host(tmp_path: Path, host: str) -> None:
    def line(n: int) -> str:
        pid = "init" if n % 6 == 2 else f"<0.{200 + n}.0>"
        request = f"{n * 7919 % 2**32:08x}ab" if n % 3 == 1 else "--------"
        return f"[{level(n).lower()}] {day(n)} shop@{host} {pid} {request} {message(n)}"

    found = proposal(tmp_path, line)
    assert {one.host for one in found.examples} == {host}
    same = {"level": "info", "program": "shop", "message": "started"}
    assert fields(found, 0) == {**same, "context": "0.200.0", "id": None}
    assert [fields(found, n)["context"] for n in (1, 2)] == ["0.201.0", "init"]
    assert fields(found, 1)["id"] == "00001eefab"


@pytest.mark.parametrize(
    "user",
    ["ann@example.com", "user{}@example.com", "user{}@mail-1.test", "shop@orders", "shop@shop_2"],
)
def test_a_mail_address_or_database_is_no_host(tmp_path: Path, user: str) -> None:
    found = proposal(tmp_path, lambda n: f"{day(n)} {level(n)} {user.format(n)} {message(n)}")
    assert found.examples[0].host == "tailer-1"


@pytest.mark.parametrize("brackets", ["<>", "[]"])
def test_a_full_name_in_brackets_is_the_host(tmp_path: Path, brackets: str) -> None:
    def line(n: int) -> str:
        user = pick(n, "", "<Shop Kernel>" if brackets == "<>" else "Shop Kernel")
        host = pick(n, "app-1.example.net", "app-2.example.net")
        values = level(n), program(n), host, user, f"SHP-{n:06}", f"{message(n)} in the shop."
        return " ".join(f"{brackets[0]}{of}{brackets[1]}" for of in (day(n), *values))

    found = proposal(tmp_path, line)
    first = fields(found, 0)
    assert found.examples[0].host == "app-1.example.net"
    assert first["message"].strip(brackets) == "started in the shop."
    assert (first["level"], first["component"]) == ("INFO", "orders")
