"""A real KDC of MIT Kerberos (Debian: krb5-kdc, krb5-admin-server), with a realm of its own.

The tickets of its clients live for `TICKET_S` only, so that tests see them expire.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Final, Self

from tests.support.ports import free_port
from tests.support.waiting import wait_for

REALM: Final = "HOURMARK.TEST"
TICKET_S: Final = 15
_PROGRAMS: Final = ("krb5kdc", "kadmin.local", "kdb5_util", "kinit")
# Debian has the servers in /usr/sbin, which is not on the path of each user.
_PATH: Final = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_COMMAND_S: Final = 60.0


def missing_programs() -> list[str]:
    """The programs of MIT Kerberos that are not installed."""
    return [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]


class Kdc:
    """The KDC, from the start of a `with` block to its end; all its files are in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._port = folder, free_port()
        self.config = folder / "krb5.conf"
        self._running: subprocess.Popen[bytes] | None = None
        folder.mkdir(exist_ok=True)
        # TCP: a KDC that does not run refuses connections at once.
        self.config.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n"
            " dns_lookup_realm = false\n dns_canonicalize_hostname = false\n rdns = false\n"
            f" udp_preference_limit = 1\n[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{self._port}\n"
            f" }}\n[logging]\n kdc = FILE:{folder}/kdc.log\n"
        )
        (folder / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{self._port}\n"
            f" kdc_tcp_listen = 127.0.0.1:{self._port}\n[realms]\n {REALM} = {{\n"
            f"  database_name = {folder}/principal\n  key_stash_file = {folder}/stash\n"
            f"  max_life = 1d\n  acl_file = {folder}/acl\n }}\n"
        )

    def __enter__(self) -> Self:
        self._run("kdb5_util", "create", "-s", "-P", "password", "-r", REALM)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def environment(self) -> dict[str, str]:
        """For programs that use the KDC."""
        return {
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{self.folder}/ccache",
        }

    def start(self) -> None:
        """Start it, and wait until it responds."""
        program = shutil.which("krb5kdc", path=_PATH)
        assert program and self._running is None
        with (self.folder / "krb5kdc.log").open("ab") as log:
            self._running = subprocess.Popen(
                [program, "-n", "-P", str(self.folder / "pid")],
                env={**os.environ, **self.environment},
                stdout=log,
                stderr=log,
            )
        wait_for(self._responds, "the KDC starts", 30, 0.1)

    def stop(self) -> None:
        """End it, if it runs; its clients cannot connect."""
        if self._running is not None:
            self._running.kill()
            self._running.wait()
            self._running = None

    def keytab(self, name: str, *, ticket_s: int | None = None) -> Path:
        """Create a principal of the realm, such as `hdfs/127.0.0.1`, or give it a new key; return
        its keytab.
        """
        file = self.folder / f"{name.replace('/', '-')}.keytab"
        life = "" if ticket_s is None else f'-maxlife "{ticket_s} seconds" '
        self._run("kadmin.local", "-q", f"addprinc -randkey {life}{name}@{REALM}")
        self._run("kadmin.local", "-q", f"ktadd -k {file} {name}@{REALM}")
        assert file.exists()
        return file

    def delete(self, name: str) -> None:
        """Delete a principal."""
        self._run("kadmin.local", "-q", f"delprinc -force {name}@{REALM}")

    def kinit(self, name: str, keytab: Path) -> None:
        """Put a ticket of a principal into the cache of `environment`."""
        self._run("kinit", "-k", "-t", str(keytab), f"{name}@{REALM}")

    def _responds(self) -> bool:
        assert self._running is not None and self._running.poll() is None, "see krb5kdc.log"
        try:
            socket.create_connection(("127.0.0.1", self._port), 1).close()
        except OSError:
            return False
        return True

    def _run(self, program: str, *words: str) -> None:
        found = shutil.which(program, path=_PATH)
        assert found, program
        done = subprocess.run(
            [found, *words],
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
