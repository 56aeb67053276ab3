"""The four Debian packages on one booted Debian, their units set up for the servers of a local
stack.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.support.booted_debian import PACKAGES as BOOTS
from tests.support.booted_debian import BootedDebian, booted
from tests.support.debian_packages import control, made
from tests.support.debian_root import clean_root
from tools.debian_package import PACKAGES

from hourmark.commands.canary import CANARY
from hourmark.config.toml_text import render_toml
from hourmark_infra.stack import LocalStack

UNITS: Final = tuple(unit for package in PACKAGES.values() for unit in package.units)
LOGS: Final = "/srv/app"
TYPES: Final = "/etc/hourmark/types"
TYPE: Final = "app-log"
AS_ETL: Final = (
    "setpriv",
    f"--reuid={PACKAGES['etl'].user}",
    f"--regid={PACKAGES['etl'].user}",
    "--clear-groups",
)  # the ledger's
_TYPE_FILE: Final = f"""
name = "{TYPE}"

[line]
payload = "text"
field = "message"
time = "observed"

[[fields]]
name = "message"
type = "bytes"
"""
_SOURCES: Final = f"""
[[source]]
name = "app"
format = "free"
types = ["{TYPE}"]
"""


@contextlib.contextmanager
def debian_site(stack: LocalStack, folder: Path) -> Iterator[BootedDebian]:
    """All are installed, configured, and their types applied; no unit runs yet."""
    debs = made(folder / "deb", revisions=["1"])
    depends = {part.split()[0] for deb in debs for part in control(deb)["Depends"].split(", ")}
    root = clean_root(folder / "root", sorted(depends | {*BOOTS}))
    try:
        root.at("/etc/hosts").write_text(
            f"127.0.0.1 localhost {socket.gethostname()}\n"
        )  # Spark asks for the machine's own name
        root.at(LOGS).mkdir(parents=True)
        for deb in debs:
            deb.rename(root.at(f"/opt/{deb.name}"))
        with booted(root, folder / "boot.log") as debian:
            debian.must(
                "dpkg", "-i", *(f"/opt/{deb.name}" for deb in debs), seconds=1200
            )  # Spark is unpacked and compiled
            _configure(debian, tomllib.loads(stack.layout.config_file.read_text()))
            yield debian
    finally:
        subprocess.run(["rm", "-rf", "--one-file-system", str(root.folder)], check=True)


def _configure(debian: BootedDebian, stack: Mapping[str, Any]) -> None:
    """What an administrator writes: addresses of servers, the length of buckets, what is followed,
    and its type.
    """
    servers = {name: stack[name] for name in ("kafka", "registry", "parsing", "storage")}
    own = {
        "tailer": {
            "tailer": {"sources": [{"name": "app", "paths": [f"{LOGS}/*.log*"]}]}
            | _of(stack, "tailer", "service_urls")
        },
        "service": {"service": _of(stack, "service", "port")},
        "mirror": {"mirror": _of(stack, "mirror", "rest_port")},
        "etl": {"etl": _of(stack, "etl", "metrics_port")},
    }
    for name, more in own.items():
        file = debian.root.at(f"/etc/hourmark/{name}.toml")
        settings = tomllib.loads(file.read_text()) | ({} if name == "tailer" else servers)
        for group, changed in more.items():
            settings[group] = {**settings.get(group, {}), **changed}
        file.write_text(render_toml(settings))  # as the package left its mode and owner
    debian.root.at(TYPES).mkdir()
    debian.root.at(f"{TYPES}/{TYPE}.toml").write_text(_TYPE_FILE)
    debian.root.at(f"{TYPES}/sources.toml").write_text(_SOURCES)
    debian.root.at(f"{TYPES}/{CANARY}.toml").write_text(
        debian.must("hourmark", "canary", "declaration")
    )
    debian.must(
        *AS_ETL, "hourmark", "types", "apply", "--dir", TYPES, "--config", "/etc/hourmark/etl.toml"
    )


def _of(stack: Mapping[str, Any], group: str, *names: str) -> dict[str, Any]:
    return {name: stack[group][name] for name in names}
