"""A PostgreSQL server of the tests' own, from the system's package, on a Unix socket in a temporary
folder, or on loopback.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import psycopg
import pytest
from tests.support.waiting import wait_for

MISSING: Final = "PostgreSQL is not installed; on Debian: apt install postgresql"
USER: Final = "hourmark"
_SYSTEM_USER: Final = "postgres"  # the server refuses to run as root
# Nothing here must survive the machine; what a crash of the server leaves does not depend on it.
_SETTINGS: Final[Mapping[str, str]] = {
    "fsync": "off",
    "listen_addresses": "",
    "max_connections": "60",
    "shared_buffers": "32MB",
}
_ASKED_TO_DIE: Final = 1  # PR_SET_PDEATHSIG
# To the kernel the thread that starts a server is its parent: this one ends with the process.
_STARTER: Final = ThreadPoolExecutor(1)


def binaries() -> Path | None:
    """The folder of `initdb` and `postgres`, by pg_config or where Debian puts it; None where it is
    not installed.
    """
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if config := shutil.which("pg_config"):
        told = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=True)
        candidates.insert(0, Path(told.stdout.strip()))
    return next(
        (c for c in candidates if (c / "initdb").is_file() and (c / "postgres").is_file()), None
    )


class Postgres:
    """A server; `start` and `stop` as often as a test likes.

    With a `port` it listens on loopback, and `url` says so.
    """

    def __init__(self, folder: Path, bindir: Path, port: int | None = None) -> None:
        self.folder, self._bindir, self._port = folder, bindir, port
        self._process: subprocess.Popen[bytes] | None = None
        self._as_user = {"user": _SYSTEM_USER} if os.geteuid() == 0 else {}
        if self._as_user:
            shutil.chown(folder, _SYSTEM_USER)
        self._run(
            "initdb",
            "-D",
            str(folder / "data"),
            "-U",
            USER,
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        )

    @property
    def pid(self) -> int | None:
        """Of the server that runs; None where none does."""
        return (
            self._process.pid
            if self._process is not None and self._process.poll() is None
            else None
        )

    def start(self) -> None:
        """Start it, and wait until it answers."""
        listening = (
            {} if self._port is None else {"listen_addresses": "127.0.0.1", "port": str(self._port)}
        )
        settings = [
            part
            for name, value in {**_SETTINGS, **listening}.items()
            for part in ("-c", f"{name}={value}")
        ]
        self._process = _STARTER.submit(self._begun, settings).result()
        wait_for(self._answers, f"PostgreSQL answers ({self.folder}/log)")

    def _begun(self, settings: Sequence[str]) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            process: subprocess.Popen[bytes] = subprocess.Popen(
                [
                    self._bindir / "postgres",
                    "-D",
                    self.folder / "data",
                    "-k",
                    self.folder,
                    *settings,
                ],
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent,
                **self._as_user,  # type: ignore[call-overload]  # `user` alone
            )
        return process

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it at once, with what was committed.

        SIGINT: after all sessions were ended; SIGQUIT: nobody will start it again.
        """
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        name = f"t{uuid.uuid4().hex}"
        self._run_sql(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def empty(self, name: str) -> None:
        """Nothing is in it any more; whoever was connected is not."""
        self._run_sql(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)', f'CREATE DATABASE "{name}"')

    def copy(self, name: str, to: str) -> None:
        """As it is now; nobody may be connected meanwhile."""
        self._run_sql(
            f'DROP DATABASE IF EXISTS "{to}"', f'CREATE DATABASE "{to}" TEMPLATE "{name}"'
        )

    def put_back(self, name: str, copy: str) -> None:
        """The copy takes its place; whoever was connected is not."""
        self._run_sql(
            f'DROP DATABASE "{name}" WITH (FORCE)', f'ALTER DATABASE "{copy}" RENAME TO "{name}"'
        )

    def is_written_to(self, name: str) -> bool:
        """Whether a transaction that has written something is open now."""
        asked = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND backend_xid IS NOT NULL"
        )
        with self._connect() as connection:
            row = connection.execute(asked, (name,)).fetchone()
        return row is not None and row[0] > 0

    def url(self, name: str) -> str:
        """As `etl.ledger` takes it."""
        where = (
            f"/{name}?host={self.folder}"
            if self._port is None
            else f"127.0.0.1:{self._port}/{name}"
        )
        return f"postgresql://{USER}@{where}"

    def _run_sql(self, *statements: str) -> None:
        with self._connect() as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def _connect(self) -> psycopg.Connection:
        return psycopg.connect(
            host=str(self.folder),
            port=self._port,
            user=USER,
            dbname="postgres",
            autocommit=True,
            connect_timeout=10,
        )

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()
        with contextlib.suppress(psycopg.OperationalError):
            self._connect().close()
            return True
        return False

    def _run(self, program: str, *arguments: str) -> None:
        environment: Mapping[str, str] = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
        done = subprocess.run(
            [self._bindir / program, *arguments],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=environment,
            **self._as_user,
        )  # type: ignore[call-overload]  # `user` alone
        assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def running(port: int | None = None) -> Iterator[Postgres]:
    """A server for as long as the block lasts; it must be installed."""
    bindir = binaries()
    assert bindir is not None, MISSING
    folder = Path(
        tempfile.mkdtemp(prefix="hourmark-pg-")
    )  # short: a socket's path has at most 107 bytes
    server = Postgres(folder, bindir, port)
    try:
        server.start()
        yield server
    finally:
        server.stop(signal.SIGQUIT)
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def running_or_skipped() -> Iterator[Postgres]:
    """The same for tests, which are skipped where it is not installed."""
    if binaries() is None:
        pytest.skip(MISSING)
    with running() as server:
        yield server


def _die_with_parent() -> None:
    """A test session that is killed leaves no server behind."""
    ctypes.CDLL(None).prctl(_ASKED_TO_DIE, signal.SIGINT)
