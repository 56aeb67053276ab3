"""SIGHUP: a running `hourmark tail` goes on with the configuration as it stands, or says why not
and goes on as it was.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder, recording
from tests.support.waiting import wait_for

# A start takes half a second of CPU time; it takes a minute when other work has the processors.
PATIENCE_S = 120
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with recording() as made:
        yield made


def text(recorder: Recorder, name: str) -> bytes:
    """What was acknowledged of a source with one file, each range as often as it was."""
    with recorder.lock:
        stored = [one for one in recorder.stored if one.range.source == name]
    return b"".join(one.body for one in sorted(stored, key=lambda one: one.range.start))


def source(name: str, path: Path) -> str:
    return f'[[tailer.sources]]\nname = "{name}"\npaths = ["{path}"]\n'


@pytest.mark.slow
def test_the_configuration_is_taken_again_where_it_is_in_order(
    tmp_path: Path, recorder: Recorder
) -> None:
    host = Host(tmp_path, recorder.url)
    app, web, log = host.app, host.logs / "web.log", tmp_path / "tail.log"
    config = host.configured(tmp_path, source("app", app))
    host.append(lines(100))
    host.append(lines(100, 1000), web)
    with log.open("wb") as stderr:
        tail = subprocess.Popen(
            [sys.executable, "-m", "hourmark", "tail", "--config", str(config)], stderr=stderr
        )
    try:
        wait_for(
            lambda: text(recorder, "app") == lines(100), "the first source is delivered", PATIENCE_S
        )
        host.configured(tmp_path, source("app", Path("relative")))
        tail.send_signal(signal.SIGHUP)
        wait_for(
            lambda: b"the configuration is rejected" in log.read_bytes(),
            "it says why not",
            PATIENCE_S,
        )
        host.append(lines(100, 100))
        wait_for(lambda: text(recorder, "app") == lines(200), "and goes on as it was", PATIENCE_S)

        host.configured(tmp_path, source("app", app) + source("web", web))
        for _ in range(3):  # also such as come while it begins anew
            tail.send_signal(signal.SIGHUP)
        wait_for(
            lambda: text(recorder, "web") == lines(100, 1000),
            "the second source is delivered",
            PATIENCE_S,
        )
        host.append(lines(100, 200))
        wait_for(
            lambda: text(recorder, "app") == lines(300),
            "the first goes on where it was",
            PATIENCE_S,
        )

        host.configured(tmp_path, source("web", web))
        tail.send_signal(signal.SIGHUP)
        wait_for(
            lambda: {told.source for told in recorder.reports[-1].sources} == {"web"},
            "the first is no source any more",
            PATIENCE_S,
        )
        tail.terminate()
        assert tail.wait(PATIENCE_S) == 0, log.read_text()
    finally:
        tail.kill()
        tail.wait()
    assert text(recorder, "app") == lines(300), "nothing twice"
    assert log.read_bytes().count(b"SIGHUP: restarting") >= 2


LATE = """
import os, signal, sys
begin_anew = os.execv
def late(*arguments):
    os.kill(os.getpid(), signal.SIGTERM)
    begin_anew(*arguments)
os.execv = late
from hourmark.cli import main
sys.exit(main())
"""


@pytest.mark.slow
def test_a_sigterm_that_comes_while_it_begins_anew_is_not_forgotten(
    tmp_path: Path, recorder: Recorder
) -> None:
    """Found by a history: nobody had told the new one to end, which then ran for ever."""
    host = Host(tmp_path, recorder.url)
    config = host.configured(tmp_path)
    host.append(lines(100))
    tail = subprocess.Popen(
        [sys.executable, "-c", LATE, "tail", "--config", str(config)], stderr=subprocess.PIPE
    )
    try:
        recorder.wait_text(lines(100))
        tail.send_signal(signal.SIGHUP)
        _, said = tail.communicate(timeout=PATIENCE_S)
        assert tail.returncode == 0, said.decode()
    finally:
        tail.kill()
        tail.wait()


@pytest.mark.slow
@pytest.mark.parametrize(
    "refused", ["url", "port", "certificate", "state_dir", "state_dir_unusable", "second_state_dir"]
)
def test_what_a_start_refuses_is_not_taken(
    tmp_path: Path, recorder: Recorder, refused: str
) -> None:
    host = Host(tmp_path, recorder.url)
    config, log = host.configured(tmp_path), tmp_path / "tail.log"
    (tmp_path / "a-file").touch()
    host.append(lines(10))
    with log.open("wb") as stderr, socket.create_server(("127.0.0.1", 0)) as taken:
        good, address = config.read_text(), f"127.0.0.1:{taken.getsockname()[1]}"
        receives = f'\n[[tailer.sources]]\nname = "net"\ninput = "syslog+%s://{address}"\n'
        bad = {
            "url": good.replace("http://", "htp://"),
            "port": good + receives % "tcp",
            "certificate": good
            + receives % "tls"
            + '[tailer.syslog.tls]\ncertificate = "/nowhere.pem"\n',
            "state_dir": good.replace('/state"', '/state2"'),
            "state_dir_unusable": good.replace('/state"', '/a-file/state"'),
            "second_state_dir": good.replace(
                "scan_seconds", f'second_state_dir = "{tmp_path}/a-file/second"\nscan_seconds'
            ),
        }[refused]
        tail = subprocess.Popen(
            [sys.executable, "-m", "hourmark", "tail", "--config", str(config)], stderr=stderr
        )
        try:
            recorder.wait_text(lines(10))
            config.write_text(bad)
            tail.send_signal(signal.SIGHUP)
            wait_for(
                lambda: b"the configuration is rejected" in log.read_bytes(),
                "it says why not",
                PATIENCE_S,
            )
            host.append(lines(10, 10))
            recorder.wait_text(lines(20))
            assert tail.poll() is None
            tail.terminate()
            assert tail.wait(PATIENCE_S) == 0, log.read_text()
        finally:
            tail.kill()
            tail.wait()
    assert len({one.range.host_id for one in recorder.stored}) == 1


@pytest.mark.slow
def test_a_sighup_while_the_program_loads_does_not_end_it(
    tmp_path: Path, recorder: Recorder
) -> None:
    host, log = Host(tmp_path, recorder.url), tmp_path / "tail.log"
    config = host.configured(tmp_path)
    host.append(lines(10))
    with log.open("wb") as stderr:
        tail = subprocess.Popen(
            [sys.executable, "-m", "hourmark", "tail", "--config", str(config)], stderr=stderr
        )
    try:
        maps = Path(f"/proc/{tail.pid}/maps")
        wait_for(lambda: "zstandard" in maps.read_text(), "it loads what it needs", PATIENCE_S)
        tail.send_signal(signal.SIGHUP)
        wait_for(lambda: b"SIGHUP: restarting" in log.read_bytes(), "it restarts", PATIENCE_S)
        recorder.wait_text(lines(10))
        tail.terminate()
        assert tail.wait(PATIENCE_S) == 0, log.read_text()
    finally:
        tail.kill()
        tail.wait()
