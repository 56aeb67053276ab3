"""s3proxy, a server with the API of S3 on a local folder, for contract suites.

Its jar is locked here and not with the stack's servers, because users never need it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.ports import free_port
from tests.support.waiting import wait_for

from hourmark.config.groups import StorageSettings
from hourmark_infra.jars.cache import IvyFetch, cache_root, ensure_jars, print_progress
from hourmark_infra.jars.lockfile import read_lock
from hourmark_infra.java.find import java_executable

JARS_LOCK: Final = Path(__file__).with_name("s3proxy_jars.lock")
BUCKET: Final = "hourmark-test"
CREDENTIALS: Final = {
    "AWS_ACCESS_KEY_ID": "test-identity",
    "AWS_SECRET_ACCESS_KEY": "test-credential",
}
_START_SECONDS: Final = 120


@contextlib.contextmanager
def s3proxy(folder: Path) -> Iterator[StorageSettings]:
    """It answers meanwhile, with one empty bucket; clients need `CREDENTIALS` in the environment."""
    locked = read_lock("s3proxy", JARS_LOCK)
    jars = ensure_jars(
        "s3proxy", locked, cache_root() / "jars", IvyFetch(java_executable), print_progress
    )
    port = free_port()
    (folder / "objects" / BUCKET).mkdir(parents=True)
    properties = {
        "s3proxy.endpoint": f"http://127.0.0.1:{port}",
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.identity": CREDENTIALS["AWS_ACCESS_KEY_ID"],
        "s3proxy.credential": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        "jclouds.provider": "filesystem-nio2",
        "jclouds.filesystem.basedir": str(folder / "objects"),
    }
    config = folder / "s3proxy.conf"
    config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    with (folder / "s3proxy.log").open("wb") as log:
        server = subprocess.Popen(
            [
                str(java_executable()),
                "-Xmx256m",
                "-jar",
                str(jars / locked[0].file_name),
                "--properties",
                str(config),
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LOG_LEVEL": "warn"},
        )
        try:
            wait_for(lambda: _answers(port), f"s3proxy of {folder} answers", _START_SECONDS)
            yield StorageSettings(
                root=f"s3://{BUCKET}/a root/date=2026",
                s3_endpoint=f"http://127.0.0.1:{port}",
                s3_region="us-east-1",
            )
        finally:
            server.kill()
            server.wait()


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
