"""Any server of the stack is away for minutes, one after the other, twice, under load: no component ends, and nothing is lost.

The demo's own story with other trouble in its middle: tailer, service, driver and `hourmark mirror run` as processes of their
own, files that grow, and events that come over HTTP all the time. MirrorMaker 2, a child, is started again by its supervisor.

    hourmark test --long tests/chaos/test_chaos_killed_servers.py

`HOURMARK_CHAOS_AWAY_S` and `HOURMARK_CHAOS_ROUNDS`: for how long, and how often, if not as a run of the suite has it.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import fastavro
import httpx
import psutil
import pytest

from hourmark.clock import SystemClock
from hourmark.config import Config, load_config
from infra.demo.demo import Demo, Result, Wish
from infra.demo.leader_kill import Stage
from infra.demo.traffic import Traffic
from infra.jars.cache import say_on_stderr
from infra.judge.buckets import closed_buckets
from infra.judge.report import Kind
from infra.judge.webhdfs import WebHdfs, hdfs_path
from infra.stack import Stack
from tests.support.servers import come_back
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(7200)]

AWAY_S = float(os.environ.get("HOURMARK_CHAOS_AWAY_S") or 90)
ROUNDS = int(os.environ.get("HOURMARK_CHAOS_ROUNDS") or 2)
SERVERS = ("edge-1", "edge-2", "edge-3", "central-1", "namenode", "datanode", "registry")
MIRROR_MAKER = "MirrorMaker 2"
BETWEEN_S = 15.0  # with all servers up: what waited goes on
BEGUN_S = 600.0
ARRIVAL_S = 600.0
API_TYPE = "pinged"
_API_PAUSE_S = 0.2
_DECLARATION = f'name = "{API_TYPE}"\ndoc = "An event over HTTP."\nfields = [{{ name = "number", type = "long" }}]\n'


class ApiTraffic:
    """Posts one event after the other, each until it is acknowledged: under its own name, so a retry is the same event."""

    def __init__(self, address: str) -> None:
        self.acknowledged = 0  # events 0 to this, exclusively
        self._url = f"{address}/v1/events/{API_TYPE}"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="api-traffic", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End; an event under way may have arrived all the same."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with httpx.Client(timeout=90.0, trust_env=False) as client:
            while not self._stop.is_set():
                number = self.acknowledged
                event = {"event_id": f"ping-{number}", "event_time": time.time_ns() // 1_000_000, "number": number}
                while not self._stop.wait(_API_PAUSE_S) and not self._taken(client, json.dumps(event)):
                    pass

    def _taken(self, client: httpx.Client, body: str) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            if client.post(self._url, content=body).status_code == 200:
                self.acknowledged += 1
                return True
        return False


class Killing:
    """The trouble of this run."""

    def __init__(self) -> None:
        self.api: ApiTraffic | None = None

    def __call__(self, demo: Stage, traffic: Traffic, stack: Stack, config: Config) -> None:
        assert isinstance(demo, Demo)
        (demo.work / "types" / f"{API_TYPE}.toml").write_text(_DECLARATION)
        demo.components.run_repeatable("types", "apply", seconds=180.0)
        self.api = ApiTraffic(config.tailer.service_urls[0])
        self.api.start()
        etl_log = demo.components.log("etl")
        demo.wait(lambda: " closed as " in etl_log.read_text(errors="replace"), "the first bucket to be closed", BEGUN_S)
        supervisor = stack.process("mirror")
        for _ in range(ROUNDS):
            for name in (*SERVERS, MIRROR_MAKER):
                before = self.api.acknowledged
                demo.tell(f"SIGKILL for {name}; {traffic.written:,} lines written, {before:,} events taken over HTTP")
                if name == MIRROR_MAKER:
                    kill_mirror_maker(stack)
                else:
                    stack.kill(name)
                    demo.pause(AWAY_S)
                    come_back(stack, name)
                assert stack.process("mirror") == supervisor, f"`hourmark mirror run` ended while {name} was away"
                demo.wait(lambda taken=before: self.taken > taken, f"an event to be taken after {name} came back", 180)  # type: ignore[misc]
                demo.pause(BETWEEN_S)
        self.api.stop()

    @property
    def taken(self) -> int:
        """Events that were acknowledged over HTTP."""
        assert self.api is not None
        return self.api.acknowledged


def kill_mirror_maker(stack: Stack) -> None:
    """SIGKILL the child, and wait until its supervisor has started another."""

    def children() -> list[psutil.Process]:
        parent = stack.process("mirror")
        assert parent is not None, "`hourmark mirror run` has ended"
        with contextlib.suppress(psutil.NoSuchProcess):
            return [p for p in psutil.Process(parent.pid).children() if p.status() != psutil.STATUS_ZOMBIE]
        return []

    wait_for(lambda: bool(children()), "MirrorMaker 2 runs", 120)
    (child,) = children()
    child.kill()
    wait_for(lambda: any(p.pid != child.pid for p in children()), "MirrorMaker 2 is started again", 180)


def span_buckets() -> int:
    """Minutes of traffic: for as long as servers are killed."""
    return math.ceil(ROUNDS * (len(SERVERS) * (AWAY_S + 20 + BETWEEN_S) + 40) / 60) + 3


def numbers_over_http(config: Config) -> Counter[int]:
    """The events over HTTP that closed buckets hold, by a stock Avro reader."""
    hdfs = WebHdfs(config.storage.webhdfs, config.storage.user)
    try:
        root = hdfs_path(config.storage.root)
        found: Counter[int] = Counter()
        for bucket in closed_buckets(hdfs, root):
            for file in bucket.marker.files if bucket.type == API_TYPE else ():
                rows: Any = fastavro.reader(io.BytesIO(hdfs.read(f"{root}/{bucket.path}/{file.name}")))
                found.update(row["number"] for row in rows)
        return found
    finally:
        hdfs.close()


def everything_arrived(result: Result, killing: Killing) -> None:
    """The judge is content with the files; of the events over HTTP each stands once, though the judge has no file for them."""
    config = load_config(result.config_file)
    found: Counter[int] = Counter()

    def all_there() -> bool:
        nonlocal found
        found = numbers_over_http(config)
        return set(range(killing.taken)) <= found.keys()

    wait_for(all_there, "all acknowledged events over HTTP in closed buckets", ARRIVAL_S)
    assert set(found.values()) == {1}
    assert len(found) - killing.taken in (0, 1), "the last one may have arrived without an answer"
    kinds = {kind: count for kind, count in result.report.counts.items() if count}
    unexpected = kinds.pop(Kind.UNEXPECTED, 0)
    assert kinds == {}, result.report.as_text()
    assert unexpected <= len(found), result.report.as_text()
    for name, of in result.outcome["types"].items():
        assert of["grades"]["timed_out"] == of["grades"]["forced"] == 0, f"{name}: {of}"
    assert sum(t.in_buckets for t in result.report.types.values()) > 0, "nothing was compared"


def test_no_component_ends_and_the_judge_is_content_after_each_server_was_away_for_minutes(tmp_path: Path) -> None:
    killing, home = Killing(), tmp_path / "home"
    demo = Demo(home, Wish(rate=50, buckets=span_buckets(), keep=True), SystemClock(), say_on_stderr, killing)
    try:
        everything_arrived(demo.run(), killing)
    finally:
        demo.components.stop_all()
        with contextlib.suppress(Exception):
            Stack.load(home).down()
