"""A real HttpFS, the gateway of Hadoop, in front of the name service of `HaHdfs`.

Its jars are locked here and not with the stack's servers, because users never need them. Maven has
no version 3.5.0 of it; it reads the 3.5.0 NameNodes over RPC.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.ha_hdfs import SERVICE, USER, HaHdfs
from tests.support.ports import free_port
from tests.support.waiting import wait_for

from hourmark.config.groups import StorageSettings
from hourmark_infra.jars.cache import IvyFetch, cache_root, ensure_jars, print_progress
from hourmark_infra.jars.lockfile import read_lock
from hourmark_infra.java.find import java_executable
from hourmark_infra.stack.hadoop import render_site
from hourmark_infra.stack.servers import SMALL_JAVA

JARS_LOCK: Final = Path(__file__).with_name("httpfs_jars.lock")
_MAIN: Final = "org.apache.hadoop.fs.http.server.HttpFSServerWebServer"
_STARTING_S: Final = 180.0
# JAXB, which it uses, calls ClassLoader.defineClass.
_JAVA_17: Final = ("--add-opens", "java.base/java.lang=ALL-UNNAMED")


@contextlib.contextmanager
def httpfs(name_service: HaHdfs, folder: Path) -> Iterator[StorageSettings]:
    """It answers meanwhile. The settings are those of a client of it."""
    jars = ensure_jars(
        "httpfs",
        read_lock("httpfs", JARS_LOCK),
        cache_root() / "jars",
        IvyFetch(java_executable),
        print_progress,
    )
    port = free_port()
    conf = folder / "conf"
    shutil.copytree(name_service.folder / "conf", conf, ignore=shutil.ignore_patterns("webapps"))
    (conf / "httpfs-signature.secret").write_text("a signature of a test")
    site = {"httpfs.http.port": str(port), "httpfs.http.hostname": "127.0.0.1"}
    (conf / "httpfs-site.xml").write_text(render_site(site))
    places = {"home": folder, "config": conf, "log": folder, "temp": folder / "temp"}
    (folder / "temp").mkdir()
    options = [f"-Dhttpfs.{name}.dir={place}" for name, place in places.items()]
    command = [str(java_executable()), "-Xmx256m", *SMALL_JAVA, *_JAVA_17, *options]
    with (folder / "httpfs.log").open("wb") as log:
        server = subprocess.Popen(
            [*command, "-cp", f"{conf}:{jars}/*", _MAIN], cwd=folder, stdout=log, stderr=log
        )

    def responds() -> bool:
        assert server.poll() is None, f"HttpFS ended (see {folder})"
        url = f"http://127.0.0.1:{port}/webhdfs/v1/?op=GETHOMEDIRECTORY&user.name={USER}"
        try:
            with urllib.request.urlopen(url, timeout=10):
                return True
        except OSError:
            return False

    try:
        wait_for(responds, f"HttpFS starts (see {folder})", _STARTING_S, 0.5)
        yield StorageSettings(
            root=f"hdfs://{SERVICE}/hourmark",
            webhdfs=f"http://127.0.0.1:{port}",
            user=USER,
            replication=1,
        )
    finally:
        server.kill()
        server.wait()
