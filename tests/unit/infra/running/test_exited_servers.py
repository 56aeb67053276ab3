"""Servers of the local stack that exit while a run uses them are noticed."""

from __future__ import annotations

from tests.support.clock import FakeClock

from hourmark_infra.running.exited_servers import ExitedServers


class Servers:
    def __init__(self, *names: str) -> None:
        self.running = {*names}

    def is_running(self, name: str) -> bool:
        return name in self.running


def test_a_server_that_exits_is_found_once_until_it_runs_again() -> None:
    clock, servers = FakeClock(), Servers("a", "b")
    exited = ExitedServers(servers, ["a", "b"], clock)
    servers.running = {"b"}
    assert exited.find_new() == [], "too early: each check has a cost"
    for running, found in (({"b"}, ["a"]), ({"b"}, []), ({"a", "b"}, []), (set[str](), ["a", "b"])):
        servers.running = running
        clock.sleep(5)
        assert exited.find_new() == found
