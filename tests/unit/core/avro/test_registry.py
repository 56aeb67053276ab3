"""The schema registry's answers: what each becomes, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.support.http_server import Answering, serving

from hourmark.avro.registry import SchemaRegistry
from hourmark.config.groups import RegistrySettings
from hourmark.errors import HourmarkError, Unavailable, UsageError

SCHEMA = {
    "type": "record",
    "name": "u",
    "fields": [{"name": "x", "type": ["null", "string"], "default": None}],
}
OTHER = {**SCHEMA, "doc": "another"}

Ask = Callable[[SchemaRegistry], object]
ASKED: dict[str, Ask] = {
    "register": lambda registry: registry.register("events.u", SCHEMA),
    "find": lambda registry: registry.find("events.u", SCHEMA),
    "schema": lambda registry: registry.schema(7),
}


class Planted(Answering):
    """Answers every question with `code` and `body`, and keeps what it was asked."""

    code: int
    body: bytes
    asked: list[tuple[str, str, Any]]

    def _any(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.asked.append(
            (self.command, urlsplit(self.path).path, json.loads(sent) if sent else None)
        )
        self.answer(self.code, self.body)

    do_GET = do_POST = do_PUT = _any


class Subject(Answering):
    """A registry with one subject and one schema in it, under the id 7."""

    asked: list[tuple[str, str, Any]]

    def do_PUT(self) -> None:
        level = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(("PUT", self.path, level))
        self.answer(200, json.dumps(level).encode())

    def do_POST(self) -> None:
        schema = json.loads(
            json.loads(self.rfile.read(int(self.headers["Content-Length"])))["schema"]
        )
        path = urlsplit(self.path).path
        self.asked.append(("POST", path, schema))
        if path == "/subjects/events.none-value":
            self.answer(
                404, json.dumps({"error_code": 40401, "message": "Subject not found."}).encode()
            )
        elif path == "/subjects/events.u-value" and schema != SCHEMA:
            self.answer(
                404, json.dumps({"error_code": 40403, "message": "Schema not found"}).encode()
            )
        else:
            found = {
                "id": 7,
                "version": 2,
                "subject": "events.u-value",
                "schema": json.dumps(SCHEMA),
            }
            self.answer(200, json.dumps(found).encode())


@pytest.fixture(autouse=True)
def _no_pause_between_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.random", lambda: 0.0)  # the client waits a random part of seconds


@contextmanager
def asking(handler: type[Answering], before: str = "") -> Iterator[SchemaRegistry]:
    with (
        serving(handler) as address,
        closing(SchemaRegistry(RegistrySettings(url=f"http://{before}{address}"))) as registry,
    ):
        yield registry


def subject() -> type[Subject]:
    return type("Handler", (Subject,), {"asked": []})


def planted(code: int, body: object) -> type[Planted]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return type("Handler", (Planted,), {"code": code, "body": raw, "asked": []})


def refused(what: str, code: int, body: object) -> HourmarkError:
    with asking(planted(code, body)) as registry, pytest.raises(HourmarkError) as error:
        ASKED[what](registry)
    return error.value


def test_every_version_of_a_subject_is_to_be_read_with_the_newest() -> None:
    handler = subject()
    with asking(handler) as registry:
        assert registry.register("events.u", SCHEMA) == 7
    assert handler.asked == [
        ("PUT", "/config/events.u-value", {"compatibility": "BACKWARD_TRANSITIVE"}),
        ("POST", "/subjects/events.u-value/versions", SCHEMA),
    ]


def test_a_schema_is_found_without_being_registered() -> None:
    handler = subject()
    with asking(handler) as registry:
        assert registry.find("events.u", SCHEMA) == 7
        assert registry.find("events.u", OTHER) is None
        assert registry.find("events.none", SCHEMA) is None
    assert handler.asked == [
        ("POST", "/subjects/events.u-value", SCHEMA),
        ("POST", "/subjects/events.u-value", OTHER),
        ("POST", "/subjects/events.none-value", SCHEMA),
    ]


@pytest.mark.parametrize(
    ("what", "code", "reason", "advice"),
    [
        ("register", 422, 'Nested union: ["null",["string"]]', "change the declaration"),
        ("find", 422, 'Nested union: ["null",["string"]]', "change the declaration"),
        (
            "register",
            409,
            "READER_FIELD_MISSING_DEFAULT_VALUE x",
            "every schema registered before it",
        ),
    ],
)
def test_a_schema_that_the_registry_refuses_is_to_be_changed(
    what: str, code: int, reason: str, advice: str
) -> None:
    error = refused(what, code, {"error_code": code * 100 + 1, "message": reason})
    assert isinstance(error, UsageError)
    for said in ("events.u-value", reason, advice, "default" if code == 409 else "declaration"):
        assert said in str(error)
    assert "check that it is running" not in str(error)


@pytest.mark.slow
@pytest.mark.parametrize("what", ASKED)
@pytest.mark.parametrize(
    ("code", "said"),
    [
        (400, "check its log"),
        (401, "credentials"),
        (403, "lack a permission"),
        (429, "later"),
        (500, "check its log"),
        (503, "check its log"),
    ],
)
def test_a_refusal_for_now_says_what_to_look_at(what: str, code: int, said: str) -> None:
    error = refused(what, code, {"error_code": code * 100 + 1, "message": "planted reason"})
    assert isinstance(error, Unavailable)
    for part in (said, "planted reason", str(code), "registry.url"):
        assert part in str(error)
    assert "check that it is running" not in str(error), "it answered"


HTML = b"<html>nothing here</html>"


@pytest.mark.slow
@pytest.mark.parametrize("what", ASKED)
@pytest.mark.parametrize(
    ("code", "body"),
    [
        *((code, body) for code in (404, 502) for body in (HTML, b"[]", b"")),
        *((200, body) for body in (HTML, b"[]", b"", b"{}", b'"x"')),
    ],
)
def test_what_is_no_registry_is_not_taken_for_one(what: str, code: int, body: bytes) -> None:
    error = refused(what, code, body)
    assert isinstance(error, Unavailable)
    assert "registry.url" in str(error)


def test_an_id_that_the_registry_does_not_know_has_no_schema() -> None:
    with asking(planted(404, {"error_code": 40403, "message": "Schema 7 not found"})) as registry:
        assert registry.schema(7) is None


@pytest.mark.parametrize("what", ASKED)
def test_a_registry_that_is_down_is_asked_after(what: str) -> None:
    with serving(planted(200, {})) as address:
        pass
    with (
        closing(SchemaRegistry(RegistrySettings(url=f"http://{address}"))) as registry,
        pytest.raises(Unavailable, match="check that it is running"),
    ):
        ASKED[what](registry)


@pytest.mark.parametrize("what", ASKED)
def test_a_password_in_the_url_is_not_shown(what: str) -> None:
    with (
        asking(planted(401, {"error_code": 40101, "message": "no"}), "me:hunter2@") as registry,
        pytest.raises(Unavailable) as error,
    ):
        ASKED[what](registry)
    assert "127.0.0.1" in str(error.value)
    assert "hunter2" not in str(error.value)
