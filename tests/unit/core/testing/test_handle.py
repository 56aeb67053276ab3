"""What a test of users does with a stack, against a service and a container that answer as told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.support.clock import FakeClock
from tests.support.http_server import Answering, serving

from hourmark.errors import Finding, Unavailable, UsageError
from hourmark.records.event_id import client_event_id
from hourmark.testing import Stack
from hourmark.testing.container import free_ports, read_type_files

TAKEN = {"events": 1, "dead_letters": 0, "dead_letter_reasons": {}}


def never(*command: str) -> str:
    raise AssertionError(command)


@contextmanager
def service(
    *answers: tuple[int, Any],
) -> Iterator[tuple[Stack, list[tuple[str, str | None, bytes]]]]:
    """A stack of which only the service is there, and what it is asked: path, key, body."""
    given, asked = iter(answers), list[tuple[str, str | None, bytes]]()

    class Service(Answering):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked.append((self.path, self.headers["Idempotency-Key"], body))
            code, answer = next(given)
            self.answer(code, json.dumps(answer).encode())

    with serving(Service) as address:
        yield Stack("", f"http://{address}", "", never, FakeClock()), asked


def test_a_post_is_sent_again_the_same_until_it_is_acknowledged() -> None:
    with service((503, {"code": "queue"}), (200, TAKEN)) as (stack, asked):
        posted = stack.post("click", {"user": "u"})
    assert asked[0] == asked[1] and asked[0][0] == "/v1/events/click" and asked[0][1]
    sent = json.loads(asked[0][2])
    assert (
        posted.ids == (str(client_event_id(sent["event_time"], "click", sent["event_id"])),)
        and sent["user"] == "u"
    )


@pytest.mark.parametrize(
    "time", [1_790_000_000_123, "2026-09-21T14:13:20.123999Z", "2026-09-21T16:13:20.123+02:00"]
)
def test_time_and_name_of_an_event_are_its_own_where_it_has_them(time: int | str) -> None:
    with service((200, TAKEN)) as (stack, asked):
        posted = stack.post("click", {"event_id": "mine", "event_time": time})
    assert json.loads(asked[0][2]) == {"event_id": "mine", "event_time": time}
    assert posted.ids == (str(client_event_id(1_790_000_000_123, "click", "mine")),)


def test_what_became_a_dead_letter_is_told_at_once() -> None:
    told = {"events": 0, "dead_letters": 1, "dead_letter_reasons": {"wrong_field": 1}}
    with service((200, told)) as (stack, _), pytest.raises(Finding, match="wrong_field"):
        stack.post("click", {"user": 7})


def test_a_type_that_there_is_not_is_not_asked_for_twice() -> None:
    with service((404, {"code": "unknown"})) as (stack, asked), pytest.raises(Finding, match="404"):
        stack.post("clack", {})
    assert len(asked) == 1


def test_a_service_that_never_takes_it_is_told_with_its_words() -> None:
    with (
        service(*[(503, {"code": "queue"})] * 99) as (stack, _),
        pytest.raises(Unavailable, match=r"in 60 s: .*queue"),
    ):
        stack.post("click", {})


class Container:
    """Says `bucket ls` and `bucket cat`; with each look one bucket more is closed."""

    def __init__(self, *buckets: list[dict[str, str]]) -> None:
        self._buckets, self._looks, self.read = buckets, 0, list[str]()

    def run(self, *command: str) -> str:
        names = [f"2026-11-21T05:{number:02}" for number in range(len(self._buckets))]
        match command[1:]:
            case "bucket", "ls", *_:
                rows = [
                    {"type": "click", "hour": n, "state": "closed", "events": len(b)}
                    for n, b in zip(names, self._buckets, strict=True)
                ]
                rows[self._looks :] = [
                    {
                        "type": "click",
                        "hour": "next",
                        "state": "open",
                        "events": 0,
                        "waits_for": "its end",
                    }
                ]
                self._looks += 1
                return json.dumps(rows)
            case "bucket", "cat", "click", name, *_:
                self.read.append(name)
                return "".join(
                    json.dumps(event) + "\n" for event in self._buckets[names.index(name)]
                )
            case "dead-letters", *_:
                return "none at all"
        raise AssertionError(command)


def test_events_are_waited_for_until_all_are_in_closed_buckets_which_are_read_once() -> None:
    container = Container([{"page": "a"}, {"page": "b"}], [], [{"page": "a"}], [{"page": "a"}])
    stack = Stack("", "", "", container.run, FakeClock())
    placed = stack.wait_until("click", lambda event: event["page"] == "a", 2)
    assert [each.bucket for each in placed] == ["2026-11-21T05:00", "2026-11-21T05:02"]
    assert container.read == ["2026-11-21T05:00", "2026-11-21T05:02"]


def test_who_waits_in_vain_is_told_what_for_and_of_dead_letters() -> None:
    stack = Stack("", "", "", Container([{"page": "b"}]).run, FakeClock())
    with pytest.raises(
        Unavailable, match=r"0 of 1 events of click .* click next: its end\nnone at all"
    ):
        stack.wait_until("click", lambda event: event["page"] == "a", seconds=30)


def test_ports_are_apart_and_a_folder_without_types_is_named(tmp_path: Any) -> None:
    ports = free_ports()
    assert len({*ports.values()}) == len(ports) == 5
    with pytest.raises(UsageError, match=str(tmp_path)):
        read_type_files(tmp_path)
