"""HDFS in safe mode, and without its NameNode: the ETL says so, publishes nothing half, and goes on by itself.

The servers of the stack are put in trouble: with HOURMARK_TEST_HOME, whoever else uses that stack is disturbed.
"""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator

import pytest
from tests.support.etl_scene import DUPLICATES, EVENTS, Scene, scene

from hourmark_infra.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.long, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def running(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp(f"hdfs-{uuid.uuid4().hex[:6]}-")
    with scene(stack.layout.config_file, folder, ("one", "two")) as made:
        made.closed(made.begin_hour())
        yield made


def test_hdfs_in_safe_mode_is_waited_out(stack: Stack, running: Scene) -> None:
    set_safe_mode(stack, "enter")
    try:
        hour = running.begin_hour()
        running.says("afe mode")
        assert not any(running.run.manifest(t, hour) for t in running.types)
    finally:
        set_safe_mode(stack, "leave")
    closed = running.closed(hour)
    assert (closed.events, closed.duplicates_removed, closed.grade.value) == (EVENTS, DUPLICATES, "proved")


def test_a_killed_namenode_is_waited_for(stack: Stack, running: Scene) -> None:
    stack.kill("namenode")
    try:
        hour = running.begin_hour()
        running.says("check that the server named runs, is active, and can be reached from here (storage.webhdfs)")
    finally:
        stack.start("namenode")
        stack.wait_ready("namenode")
    closed = running.closed(hour)
    assert (closed.events, closed.duplicates_removed, closed.grade.value) == (EVENTS, DUPLICATES, "proved")


def set_safe_mode(stack: Stack, action: str) -> None:
    """`hdfs dfsadmin -safemode ACTION`."""
    programs, layout = stack.programs, stack.layout
    classpath = f"{layout.settings / 'hadoop'}:{programs.hadoop}/*"
    command = [str(programs.java), "-cp", classpath, "org.apache.hadoop.hdfs.tools.DFSAdmin", "-safemode", action]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
