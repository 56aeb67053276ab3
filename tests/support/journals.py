"""A program in journalctl's place: entries of a file, by cursor, as they come.

And a real journal, where its tools are.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

REMOTE: Final = Path("/lib/systemd/systemd-journal-remote")
_BOOT: Final = "7a0e5f8f6f7c4d0f9f3a8f3b1c2d4e5f"
_PROGRAM: Final = """#!{python} -IS
import json, os, select, sys, time
folder, parent = "{folder}", os.getppid()
reader = select.poll()
reader.register(1, 0)  # tells when the reading end of the pipe is closed
sought = next((word.partition("=")[2] for word in sys.argv if word.startswith("--cursor=")), "")
since = float(next((word.partition("=@")[2] for word in sys.argv if word.startswith("--since=")), 0))
with open(f"{folder}/asked", "a") as asked:
    print(*(word for word in sys.argv if word.startswith(("--since=", "--cursor="))), file=asked)
def is_broken():
    return os.path.exists(f"{folder}/broken")
def is_orphan():  # its parent may have been killed before this program asked for it
    return os.getppid() != parent or bool(reader.poll(0))
if is_broken():
    sys.exit("Failed to open the journal")
while os.path.exists(f"{folder}/slow") and not is_orphan():
    time.sleep(0.005)
content = open(f"{folder}/entries", "rb")
def numbers(cursor):
    fields = dict(field.split("=") for field in cursor.split(";"))
    return fields["s"], int(fields["i"], 16)
is_there = sought.encode() in content.read()
content.seek(0)
passing = bool(sought) and is_there  # else it begins with what is behind that place
seen = 0  # the number of the entry that was read last: numbers go on in another sequence
def is_behind(entry):
    if not sought or is_there:
        return True
    (sequence, number), (own, at) = numbers(sought), numbers(entry["__CURSOR"])
    return sequence == own and at > number
while True:
    place = content.tell()
    line = content.readline()
    if line.endswith(b"\\n"):
        entry = json.loads(line)
        number = numbers(entry["__CURSOR"])[1]
        passing = passing and entry["__CURSOR"] != sought
        if not passing and number > seen and int(entry["__REALTIME_TIMESTAMP"]) >= since * 1e6 and is_behind(entry):
            sys.stdout.buffer.write(line)
            seen = number
            if "--lines=1" in sys.argv:
                sys.exit(0)
        continue
    content.seek(place)
    sys.stdout.buffer.flush()
    if "--follow" not in sys.argv or is_broken() or is_orphan():
        sys.exit(0)
    if os.stat(f"{folder}/entries").st_ino != os.fstat(content.fileno()).st_ino:  # rotated, vacuumed or made again
        content, passing = open(f"{folder}/entries", "rb"), False
        continue
    time.sleep(0.005)
"""


class FakeJournal:
    """`program` is called as journalctl is."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self.program = folder, str(folder / "journalctl")
        (folder / "entries").touch()
        Path(self.program).write_text(
            _PROGRAM.replace("{python}", sys.executable).replace("{folder}", str(folder))
        )
        Path(self.program).chmod(0o700)
        self._count = self._sequence = 0

    def asked(self) -> list[str]:
        """Of each start, where it was to begin."""
        return (self.folder / "asked").read_text().splitlines()

    def add(self, *messages: Any, realtime_s: float | None = None) -> None:
        """More entries."""
        with (self.folder / "entries").open("a") as file:
            for message in messages:
                self._count += 1
                made = entry(self._count, message)
                if self._sequence:
                    made["__CURSOR"] = made["__CURSOR"].replace(
                        "s=dff25", f"s={self._sequence:05x}"
                    )
                if realtime_s is not None:
                    made["__REALTIME_TIMESTAMP"] = str(round(realtime_s * 1e6))
                file.write(json.dumps(made) + "\n")

    def vacuum(self, *, left: int) -> None:
        """Remove all but the latest entries."""
        entries = (self.folder / "entries").read_bytes().splitlines(keepends=True)
        self._replace(b"".join(entries[len(entries) - left :]))

    def rotate(self) -> None:
        """The same entries are in other files."""
        self._replace((self.folder / "entries").read_bytes())

    def make_again(self) -> None:
        """An empty journal in its place, whose entries are of another sequence."""
        self._replace(b"")
        self.begin_a_sequence()

    def _replace(self, content: bytes) -> None:
        (self.folder / "entries.new").write_bytes(content)
        (self.folder / "entries.new").rename(self.folder / "entries")

    def begin_a_sequence(self) -> None:
        """What comes is of another sequence than what is there."""
        self._sequence += 1

    def set_broken(self, broken: bool) -> None:
        """Whether the program ends with an error, at once."""
        self._set("broken", broken)

    def set_slow(self, slow: bool) -> None:
        """Whether the program waits before it reads anything."""
        self._set("slow", slow)

    def _set(self, name: str, there: bool) -> None:
        if there:
            (self.folder / name).touch()
        else:
            (self.folder / name).unlink()


def entry(number: int, message: Any) -> dict[str, Any]:
    """One, as systemd 252 writes it."""
    return {
        "_PID": "812",
        "MESSAGE": message,
        "__REALTIME_TIMESTAMP": str(1795452320000000 + number),
        "_BOOT_ID": _BOOT,
        "PRIORITY": "6",
        "_SYSTEMD_UNIT": "ssh.service",
        "SYSLOG_IDENTIFIER": "sshd",
        "_HOSTNAME": "web-1",
        "__CURSOR": f"s=dff2505470c7419e8dac383b7670e21a;i={number:x};b={_BOOT};m={1000 + number:x};t=660f451be{number:x};x=1256",
    }


def real_journal(folder: Path, messages: list[bytes]) -> str:
    """A program that reads a journal of these entries with this machine's journalctl; skips where
    there is none.
    """
    journalctl = shutil.which("journalctl")
    if journalctl is None or not REMOTE.exists():
        pytest.skip("no journalctl, or no systemd-journal-remote, which makes journals")
    exported = b"".join(
        f"__REALTIME_TIMESTAMP={1795452320000000 + n}\n__MONOTONIC_TIMESTAMP={1000 + n}\n_BOOT_ID={_BOOT}\n_HOSTNAME=web-1\n"
        f"PRIORITY=6\n_PID=812\nSYSLOG_IDENTIFIER=sshd\n_SYSTEMD_UNIT=ssh.service\n".encode()
        + b"MESSAGE\n"
        + len(message).to_bytes(8, "little")
        + message
        + b"\n\n"
        for n, message in enumerate(messages)
    )
    folder.mkdir()
    subprocess.run(
        [REMOTE, "-o", str(folder / "x.journal"), "-"],
        input=exported,
        check=True,
        capture_output=True,
        timeout=60,
    )
    program = folder / "journalctl"
    program.write_text(f'#!/bin/sh\nexec {journalctl} --directory={folder} "$@"\n')
    program.chmod(0o700)
    return str(program)
