"""What `up` lets the user choose, and what it chooses itself: the length of buckets, the service's
port.
"""

from __future__ import annotations

import dataclasses
import json
import re
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.unit.infra.test_stack_settings import PROGRAMS

from hourmark.cli import root
from hourmark.config.groups import ServiceSettings
from hourmark.config.loading import load_config
from hourmark.errors import UsageError
from hourmark.state_folder import StateFolder
from hourmark_infra.stack import LocalStack
from hourmark_infra.stack.config_file import render_config
from hourmark_infra.stack.settings import write_settings
from hourmark_infra.stack.state import load_state, new_state, save_state, state_file

ROOT = Path(__file__).resolve().parents[3]


def bucket_seconds(home: Path) -> int:
    """As the other commands of this home read it."""
    stack = LocalStack.load(home)
    write_settings(stack.layout, render_config(stack.layout, PROGRAMS, "me", stack.bucket_seconds))
    return load_config(stack.layout.config_file).parsing.bucket_seconds


def test_the_length_of_buckets_that_was_chosen_stays_until_another_is(tmp_path: Path) -> None:
    for chosen, length in ((None, 3600), (60, 60), (None, 60)):
        LocalStack.load_or_create(tmp_path, bucket_seconds=chosen)
        assert bucket_seconds(tmp_path) == length


def test_a_length_that_is_no_bucket_s_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOURMARK_HOME", str(tmp_path))
    with pytest.raises(
        UsageError, match=r"--bucket-seconds 45: allowed: 3600, or, for tests, whole minutes"
    ):
        CliRunner().invoke(root, ["up", "--bucket-seconds", "45"], catch_exceptions=False)
    assert not state_file(tmp_path).exists()


def test_the_number_of_clusters_is_chosen_once(tmp_path: Path) -> None:
    one = LocalStack.load_or_create(tmp_path, clusters=1)
    assert not {"central-1", "mirror"} & {*one.names}
    assert [*one.names] == ["edge-1", "edge-2", "edge-3", "namenode", "datanode", "registry"]
    write_settings(one.layout, render_config(one.layout, PROGRAMS, "me", 60, one.clusters))
    assert not load_config(one.layout.config_file).kafka.mirrored
    assert LocalStack.load_or_create(tmp_path).clusters == 1, "as before"
    with pytest.raises(UsageError, match="has 1 Kafka cluster"):
        LocalStack.load_or_create(tmp_path, clusters=2)


def test_a_stack_of_before_has_two_clusters(tmp_path: Path) -> None:
    assert LocalStack.load_or_create(tmp_path).clusters == 2
    old = json.loads(state_file(tmp_path).read_text())
    del old["clusters"]
    state_file(tmp_path).write_text(json.dumps(old))
    assert {"central-1", "mirror"} <= {*LocalStack.load(tmp_path).names}


def test_a_stack_that_is_made_with_two_workers_keeps_them_and_else_has_one(tmp_path: Path) -> None:
    assert "mirror-2" not in LocalStack.load_or_create(tmp_path / "of a user").names
    two = LocalStack.load_or_create(tmp_path / "of a trial", spread=True, workers=2)
    assert [name for name in two.names if name.startswith("mirror")] == [
        "mirror",
        "mirror-2",
        "mirror-watch",
    ]
    assert (
        LocalStack.load_or_create(tmp_path / "of a trial").names
        == LocalStack.load(tmp_path / "of a trial").names
        == two.names
    )


def test_a_stack_of_before_has_one_worker_and_the_port_of_another_from_its_next_up_on(
    tmp_path: Path,
) -> None:
    before = LocalStack.load_or_create(tmp_path)
    old = json.loads(state_file(tmp_path).read_text())
    del old["workers"], old["ports"]["mirror-2-rest"]
    state_file(tmp_path).write_text(json.dumps(old))
    assert LocalStack.load(tmp_path).names == before.names
    assert bucket_seconds(tmp_path) == 3600, "its settings are written as before"
    assert LocalStack.load_or_create(tmp_path).layout.ports.keys() == before.layout.ports.keys()


def test_the_service_gets_the_port_that_documents_name_where_it_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free_soon = taken.getsockname()[1]
        assert new_state({"service": free_soon}).ports["service"] != free_soon
    assert new_state({"service": free_soon}).ports["service"] == free_soon


def test_the_documents_name_the_port_that_up_prefers() -> None:
    session = "docs/start/first-bucket.md"
    for document in (session, "docs/reference/http-api.md", "examples/tailer.toml"):
        named = set(re.findall(r"127\.0\.0\.1:(\d+)", (ROOT / document).read_text()))
        assert named <= {str(ServiceSettings().port)}, document
    assert not re.search(r"hourmark serve --port", (ROOT / session).read_text()), (
        "the stack's own settings name it"
    )


@pytest.mark.parametrize("running", [True, False])
def test_a_port_that_the_own_service_holds_is_not_chosen_anew(
    tmp_path: Path, running: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as service:
        port = service.getsockname()[1]
        state = new_state()
        save_state(
            tmp_path,
            dataclasses.replace(state, ports={**state.ports, "service": port}, processes={}),
        )
        stack = LocalStack.load(tmp_path, report=lambda _: None)
        lock = StateFolder(stack.layout.state / "service", "service").lock()
        if not running:
            lock.close()
        stack.replace_taken_ports()
        lock.close()
    kept = load_state(tmp_path)
    assert kept is not None
    assert (kept.ports["service"] == port) is running
