"""Whether a server is well is said of every kind of answer, and an odd one is never taken for
well.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from tests.support.http_server import Answering, serving

from hourmark.commands.server_status import LEAVE_SAFE_MODE
from hourmark_infra.stack import health
from hourmark_infra.stack.health import Health, check_namenode, check_registry


def asked(ask: Callable[[str], Health], code: int, body: bytes) -> tuple[Health, Health]:
    """What is said of a server that answers this, and of one that answers no more."""

    class Handler(Answering):
        def do_GET(self) -> None:
            self.answer(code, body)

    with serving(Handler) as address:
        answered = ask(address)
    return answered, ask(address)


@pytest.mark.parametrize("ask", [check_registry, check_namenode])
@pytest.mark.parametrize(
    ("code", "body", "detail"),
    [
        (500, b"x", "responds with status 500 to"),
        (307, b"", "responds with status 307 to"),
        (200, b"<html>", "the response at"),
        (204, b"", "the response at"),
    ],
)
def test_an_odd_answer_is_not_well(
    ask: Callable[[str], Health], code: int, body: bytes, detail: str
) -> None:
    answered, gone = asked(ask, code, body)
    assert not answered.ok and answered.detail.startswith(detail)
    assert gone == Health(False, "does not listen")


def test_what_is_well_says_what_it_holds() -> None:
    assert asked(check_registry, 200, b'["a", "b"]')[0] == Health(True, "2 subjects")
    beans = b'{"beans": [{"Safemode": "%s", "LiveNodes": "{\\"d\\": {}}"}]}'
    assert asked(check_namenode, 200, beans % b"")[0] == Health(True, "1 live datanode")
    assert asked(check_namenode, 200, beans % b"on")[0] == Health(
        False, "in safe mode: nothing can be written", LEAVE_SAFE_MODE
    )
    assert asked(check_namenode, 200, b'{"beans": []}')[0] == Health(False, "still starting")


def test_a_namenode_without_disk_space_says_so() -> None:
    body = b'{"beans": [{"Safemode": "Safe mode is ON. Resources are low on NN. Please add more"}]}'
    found = asked(check_namenode, 200, body)[0]
    assert found.detail == "in safe mode, because the disk of its data folder is almost full"
    assert found.do.startswith("free space on this disk")


def test_a_datanode_is_known_to_its_namenode_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = json.dumps({"d": {"infoAddr": "127.0.0.1:9864", "lastContact": 1}})
    beans = {
        "java.lang:type=Runtime": {"Uptime": 60_000},
        "Hadoop:service=NameNode,name=NameNodeInfo": {"LiveNodes": nodes},
    }
    monkeypatch.setattr(health, "_get_bean", lambda address, name: beans[name])
    assert health.check_datanode("localhost:9864", "namenode:9870") == Health(
        True, "last heartbeat to its NameNode 1 s ago"
    )
    assert not health.check_datanode("localhost:9865", "namenode:9870").ok
    assert not health.check_datanode("no such host:9864", "namenode:9870").ok
