"""What a member of the workers' group was told."""

from __future__ import annotations

from hourmark.mirror_workers import leader_in


def test_who_leads_is_read_from_an_assignment() -> None:
    """As a worker of 4.3.0 was told it."""
    told = b"\x00\x02\x00\x00\x00\x04abcd\x00\x17http://127.0.0.1:20029/\x00\x00\x00\x00\x00\x00\x00\x0e\x00\x00\x00\x00\x00\x00\x00\x00"
    assert leader_in(told) == "127.0.0.1:20029"
    assert leader_in(b"") == leader_in(None) == ""
    assert leader_in(b"\x00\x02\x00\x00\xff\xff\xff\xff") == "", "no leader yet"
