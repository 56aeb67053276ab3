"""Whoever is done with a client waits for its end in time, or not at all."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from hourmark.config.groups import KafkaCluster
from hourmark.kafka.clients import Cluster, close_within


def test_what_ends_in_time_is_waited_for_and_nothing_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended: list[int] = []
    close_within(lambda: ended.append(1), "a client")
    assert ended == [1] and not caplog.records


def test_a_client_that_is_replaced_keeps_nobody_waiting() -> None:
    ever, ended = threading.Event(), threading.Event()

    class Old:
        def __del__(self) -> None:
            ever.wait(30)
            ended.set()

    cluster = Cluster(KafkaCluster(bootstrap="127.0.0.1:1", properties={"log_level": "0"}), "edge")
    old: Any = Old()
    cluster.admin = old
    del old
    began_s = time.monotonic()
    cluster.reconnect()
    assert time.monotonic() - began_s < 10 and not isinstance(cluster.admin, Old)
    ever.set()
    assert ended.wait(30), "and it ends"
