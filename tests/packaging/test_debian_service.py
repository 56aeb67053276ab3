"""The unit of the Debian package under a real systemd, with all that it forbids, against a service
that records.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.packaging.test_debian_package import CONFIGURATION, LOG, NAME, append
from tests.support.booted_debian import PACKAGES, BootedDebian, booted
from tests.support.debian_packages import control
from tests.support.debian_root import clean_root
from tests.support.tailer.host import lines
from tests.support.tailer.recorder import Recorder, recording
from tests.support.waiting import wait_for

# A second Debian, with systemd, is fetched and unpacked beside that of test_debian_package.py.
pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

DAC_READ_SEARCH = 1 << 2


@pytest.fixture
def debian(tailer_packages: tuple[Path, Path], tmp_path: Path) -> Iterator[BootedDebian]:
    """With the package installed, and its next revision beside it."""
    first, second = tailer_packages
    depends = {part.split()[0] for part in control(first)["Depends"].split(", ")}
    root = clean_root(tmp_path / "root", sorted(depends | set(PACKAGES)))
    try:
        for package, name in ((first, "first.deb"), (second, "second.deb")):
            root.at(f"/opt/{name}").write_bytes(package.read_bytes())
        root.at(LOG).parent.mkdir(mode=0o700)
        with booted(root, tmp_path / "boot.log") as debian:
            debian.must("dpkg", "-i", "/opt/first.deb")
            yield debian
    finally:
        subprocess.run(["rm", "-rf", str(root.folder)], check=True)


def configure(debian: BootedDebian, recorder: Recorder) -> None:
    debian.root.at(CONFIGURATION).write_text(f"""
[tailer]
service_urls = ["{recorder.url}"]
[[tailer.sources]]
name = "app"
paths = ["{LOG}*"]
record_start = "^line"
flush_seconds = 0.2
""")


def status_of(debian: BootedDebian) -> dict[str, str]:
    pid = debian.shown(NAME, "MainPID")
    text = debian.must("cat", f"/proc/{pid}/status")
    return {
        name: value.strip()
        for name, _, value in (line.partition(":") for line in text.splitlines())
    }


def test_the_unit_starts_delivers_comes_back_and_is_upgraded(debian: BootedDebian) -> None:
    with recording() as recorder:
        configure(debian, recorder)
        append(debian.root, lines(100))
        debian.must("systemctl", "start", NAME)
        recorder.wait_text(lines(100))

        status = status_of(debian)
        assert status["Uid"].split() == [debian.must("id", "-u", "hourmark").strip()] * 4
        for capabilities in ("CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(status[capabilities], 16) == DAC_READ_SEARCH
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")

        debian.must("systemctl", "kill", "--signal=KILL", NAME)
        append(debian.root, lines(100, 100))
        recorder.wait_text(lines(200))
        assert debian.shown(NAME, "NRestarts") == "1"

        before = debian.shown(NAME, "MainPID")
        debian.must("dpkg", "-i", "/opt/second.deb")
        append(debian.root, lines(100, 200))
        recorder.wait_text(lines(300))
        assert debian.shown(NAME, "MainPID") != before

        pid = debian.shown(NAME, "MainPID")
        debian.must("systemctl", "reload", NAME)
        wait_for(
            lambda: (
                debian.journal(NAME).count("SIGHUP: restarting with the current configuration") == 1
            ),
            "it begins anew",
        )
        append(debian.root, lines(100, 300))
        recorder.wait_text(lines(400))
        assert (debian.shown(NAME, "MainPID"), debian.shown(NAME, "NRestarts")) == (pid, "0"), (
            "no restart of systemd's"
        )

        debian.must("systemctl", "stop", NAME)
        assert debian.shown(NAME, "Result") == "success"
        assert "without a goodbye" in debian.journal(NAME)
    assert recorder.text() == lines(400)


def journal_lines(recorder: Recorder) -> list[str]:
    """What the test itself wrote into the journal."""
    found = sorted(json.loads(line)["message"] for line in recorder.text().splitlines())
    return [message for message in found if message.startswith("note ")]


def test_a_wrong_setting_is_told_and_not_tried_again_and_a_right_one_has_the_journal_read(
    debian: BootedDebian,
) -> None:
    debian.root.at(CONFIGURATION).write_text("[tailer]\nscan_second = 1\n")
    debian.run("systemctl", "start", NAME)
    wait_for(lambda: debian.shown(NAME, "ActiveState") == "failed", "it gives up")
    assert debian.shown(NAME, "NRestarts") == "0"
    assert "tailer.scan_second: unknown setting" in debian.journal(NAME)

    def note(number: int) -> None:
        debian.must("sh", "-c", f"echo note {number} | systemd-cat --identifier=test")

    with recording() as recorder:
        debian.root.at(CONFIGURATION).write_text(f"""
[tailer]
service_urls = ["{recorder.url}"]
[[tailer.sources]]
name = "journal"
input = "journald"
""")
        note(1)
        debian.must("systemctl", "reset-failed", NAME)
        debian.must("systemctl", "start", NAME)
        wait_for(lambda: journal_lines(recorder) == ["note 1"], "what was in the journal")
        note(2)
        wait_for(lambda: len(journal_lines(recorder)) == 2, "what came")
        debian.must("systemctl", "kill", "--signal=KILL", NAME)
        note(3)
        wait_for(lambda: len(journal_lines(recorder)) >= 3, "what came after a kill")
        debian.must("systemctl", "stop", NAME)
        assert journal_lines(recorder) == ["note 1", "note 2", "note 3"]
        cursors = [json.loads(line)["cursor"] for line in recorder.text().splitlines()]
        assert len(cursors) == len(set(cursors)) > 10, "no entry twice"
        assert recorder.last.unknown_losses == 0
