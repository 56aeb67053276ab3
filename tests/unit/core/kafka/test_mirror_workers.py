"""What a member of the workers' group was told."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from hourmark.errors import Unavailable
from hourmark.kafka.mirror import NO_LEADER, MirrorLeader, MirrorWorkers, parse_leader, read_workers


def test_who_leads_is_read_from_an_assignment() -> None:
    """As a worker of 4.3.0 was told it."""
    told = b"\x00\x02\x00\x00\x00\x04abcd\x00\x17http://127.0.0.1:20029/\x00\x00\x00\x00\x00\x00\x00\x0e\x00\x00\x00\x00\x00\x00\x00\x00"
    assert parse_leader(told) == MirrorLeader("abcd", "127.0.0.1:20029")
    assert parse_leader(b"") == parse_leader(None) == NO_LEADER
    assert parse_leader(b"\x00\x02\x00\x00\xff\xff\xff\xff") == NO_LEADER, "no leader yet"


def test_workers_on_several_hosts_whose_leader_listens_on_loopback_do_not_find_it() -> None:
    two = ("10.0.0.1", "10.0.0.2")
    assert MirrorWorkers(two, MirrorLeader("a", "127.0.0.1:8783")).is_split
    assert not MirrorWorkers(two, MirrorLeader("a", "mirror-1:8783")).is_split
    assert not MirrorWorkers(("10.0.0.1",), MirrorLeader("a", "127.0.0.1:8783")).is_split
    assert not MirrorWorkers(two).is_split


def told(**group: Any) -> Any:
    """A cluster that tells of one group so."""

    def list_groups(_: str, timeout: float) -> list[Any]:
        warnings.warn("use another", DeprecationWarning, stacklevel=1)
        return [SimpleNamespace(**{"members": [], "error": None, **group})]

    return SimpleNamespace(admin=SimpleNamespace(list_groups=list_groups))


def test_of_a_group_that_may_not_be_seen_nobody_says_that_nobody_is_in_it() -> None:
    assert read_workers(told(), "edge") == MirrorWorkers()
    denied = told(error=KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    with pytest.raises(
        Unavailable,
        match=r"did not describe group edge-mm2: .*authorization failed; check that this user has permission",
    ):
        read_workers(denied, "edge")
