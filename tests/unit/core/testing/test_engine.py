"""Which container engine tests of users take; where there is none, it is said, and nothing
fails.
"""

from __future__ import annotations

import json
import os
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from testcontainers.core.config import testcontainers_config

from hourmark.testing import engine as module
from hourmark.testing.engine import NoEngine, candidate_sockets, engine

NOWHERE = "unix:///nowhere/docker.sock"


@pytest.fixture(autouse=True)
def nothing_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither a named engine nor a socket nor a program, whatever this machine has."""
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(module, "candidate_sockets", lambda _: [])


@contextmanager
def answering(path: Path, name: str) -> Iterator[None]:
    """Says its version at this socket, as engines do."""

    class Version(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(
                {"ApiVersion": "1.44", "Components": [{"Name": name, "Version": "1"}]}
            ).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def address_string(self) -> str:
            return "somebody"

        def log_message(self, format: str, *args: object) -> None:
            pass

    with socketserver.UnixStreamServer(str(path), Version) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def test_where_there_is_none_it_is_said() -> None:
    with pytest.raises(NoEngine, match="no container engine is available"), engine():
        pytest.fail("there is none")


def test_an_engine_that_is_named_and_does_not_answer_is_not_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", NOWHERE)
    monkeypatch.setattr(module, "candidate_sockets", lambda _: [tmp_path / "other.sock"])
    with (
        answering(tmp_path / "other.sock", "Engine"),
        pytest.raises(NoEngine, match=NOWHERE),
        engine(),
    ):
        pytest.fail("another was taken")
    assert os.environ["DOCKER_HOST"] == NOWHERE


def test_the_first_that_answers_is_named_for_all_meanwhile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    left, answers = tmp_path / "left.sock", tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(left))  # as of a daemon that was killed: a file where nobody listens
    monkeypatch.setattr(
        module, "candidate_sockets", lambda _: [tmp_path / "none.sock", left, answers]
    )
    reaps_not = testcontainers_config.ryuk_disabled
    with answering(answers, "Engine"), engine():
        assert os.environ["DOCKER_HOST"] == f"unix://{answers}"
        assert testcontainers_config.ryuk_disabled is reaps_not
    assert "DOCKER_HOST" not in os.environ


def test_under_podman_there_is_no_reaper(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", False)
    monkeypatch.setattr(module, "candidate_sockets", lambda _: [tmp_path / "podman.sock"])
    with answering(tmp_path / "podman.sock", "Podman Engine"), engine():
        assert testcontainers_config.ryuk_disabled
    assert not testcontainers_config.ryuk_disabled


def test_podman_without_a_socket_is_asked_to_serve_one_and_what_it_says_instead_is_told(
    tmp_path: Path,
) -> None:
    podman = tmp_path / "podman"
    podman.write_text('#!/bin/sh\necho "no room for $3" >&2\nexit 125\n')
    podman.chmod(0o755)
    with pytest.raises(NoEngine, match=r"does not respond: no room for --time=0"), engine():
        pytest.fail("it does not serve")


def test_sockets_are_those_of_docker_and_of_podman_the_users_own_first() -> None:
    found = list(map(str, candidate_sockets({"XDG_RUNTIME_DIR": "/run/user/7"})))
    assert found == [
        "/var/run/docker.sock",
        "/run/user/7/podman/podman.sock",
        "/run/podman/podman.sock",
    ]
    assert len(candidate_sockets({})) == 2


@pytest.mark.slow
def test_a_users_tests_are_skipped_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["hourmark.testing.plugin"]\n')
    (tmp_path / "test_it.py").write_text(
        "def test_with(hourmark_stack): raise AssertionError\ndef test_without(): pass\n",
    )
    command = (sys.executable, "-m", "pytest", "-ra", "-p", "no:cacheprovider", str(tmp_path))
    variables = {**os.environ, "DOCKER_HOST": NOWHERE}
    done = subprocess.run(
        command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "1 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    assert f"no container engine responds at DOCKER_HOST={NOWHERE}" in done.stdout


def test_without_the_extra_it_is_named() -> None:
    code = "import sys; sys.modules['testcontainers'] = None\nimport hourmark.testing"
    done = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "pip install 'hourmark[testing]'" in done.stderr
