"""HDFS in safe mode, and without its NameNode: the ETL says so, publishes nothing half, and goes on
by itself.

The servers of the stack are put in trouble: with HOURMARK_TEST_HOME, whoever else uses that stack
is disturbed.
"""

from __future__ import annotations

from tests.faults.outcome import LONG, assert_whole
from tests.support.etl_scene import Scene
from tests.support.servers import set_safe_mode

from hourmark_infra.stack import LocalStack

pytestmark = LONG
SCENE = {"names": ("one", "two")}


def test_hdfs_in_safe_mode_is_waited_out(stack: LocalStack, running: Scene) -> None:
    set_safe_mode(stack, "enter")
    try:
        hour = running.begin_hour()
        running.says("afe mode")
        assert not any(running.run.manifest(t, hour) for t in running.types)
    finally:
        set_safe_mode(stack, "leave")
    assert_whole(running.closed(hour))


def test_a_killed_namenode_is_waited_for(stack: LocalStack, running: Scene) -> None:
    stack.kill("namenode")
    try:
        hour = running.begin_hour()
        running.says(
            "check that the named server is running and active, and can be reached from here "
            "(storage.webhdfs)"
        )
    finally:
        stack.start("namenode")
        stack.wait_ready("namenode")
    assert_whole(running.closed(hour))
