"""MirrorMaker 2 as a child process that never outlives its parent.

The kernel kills the child when this process dies for any reason (Linux: prctl(2),
PR_SET_PDEATHSIG). SIGTERM to this process is forwarded, and the child is always reaped.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final

from hourmark.config.loading import Config
from hourmark.errors import ConfigError, Unavailable
from hourmark.process.durable import write_durably
from hourmark_mirror.settings.properties import (
    TARGET_ALIAS,
    mirror_maker_properties,
    render_java_properties,
    secret_properties,
    secrets_path,
    target_cluster,
)
from hourmark_mirror.settings.security import check_bootstrap, check_private_key

MAIN_CLASS: Final = "org.apache.kafka.connect.mirror.MirrorMaker"
STOP_TIMEOUT_S: Final = 15.0  # then SIGKILL: the next start aborts the open transaction
_PR_SET_PDEATHSIG: Final = 1
_JAR: Final = re.compile(r"connect-mirror-(\d[\w.-]*)\.jar")

# A task whose consumer cannot read a batch logs it thousands of times a second (`damaged_topics`):
# one line a second is enough. In dedicated mode the checkpoint connector is always configured, and
# fails because checkpoints are off: of no interest to an operator.
LOG4J2: Final = """\
status = error
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = [%d] %p %m (%c)%n
logger.herder.name = org.apache.kafka.connect.mirror.MirrorHerder
logger.herder.level = {level}
logger.herder.filter.expected.type = RegexFilter
logger.herder.filter.expected.regex = Failed to configure MirrorCheckpointConnector.*
logger.herder.filter.expected.onMatch = DENY
logger.herder.filter.expected.onMismatch = NEUTRAL
logger.task.name = org.apache.kafka.connect.mirror.MirrorSourceTask
logger.task.level = {level}
logger.task.filter.burst.type = BurstFilter
logger.task.filter.burst.level = WARN
logger.task.filter.burst.rate = 1
logger.task.filter.burst.maxBurst = 20
"""


class MirrorMakerProcess:
    """MirrorMaker 2 process that is started by the constructor.

    Its output is written to the stderr of the calling process.

    Attributes:
        pid: Process id.
    """

    def __init__(self, config: Config, excluded: Collection[str] = ()) -> None:
        """Write the configuration files of MirrorMaker 2, and start the Java process.

        Args:
            config: Configuration with both clusters and the group `mirror`.
            excluded: Names of edge topics to exclude from replication.

        Raises:
            ConfigError: A setting is invalid, or `mirror.java` cannot be started.
            Unavailable: The configuration files cannot be written.
        """
        command = prepare_command(config, excluded)
        sys.stderr.flush()
        try:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=2,
                stderr=2,
                cwd=config.mirror.work_dir,  # references to the secrets file are relative to it
                preexec_fn=_kill_with_parent(os.getpid()),
            )
        except OSError as error:
            raise ConfigError(
                f"mirror.java = {command[0]!r} cannot be started: {error.strerror}; "
                "allowed: a Java 17 or 21"
            ) from error
        self.pid = self._child.pid

    def poll(self) -> int | None:
        """Return the exit code of the process, or None while the process runs.

        If a signal ended the process, the exit code is the negative signal number. Does not block.
        """
        return self._child.poll()

    def stop(self) -> int:
        """Send SIGTERM, then SIGKILL after 15 seconds, and wait for the process to end.

        Does nothing if the process has already ended.

        Returns:
            The exit code; the negative signal number if a signal ended the process.
        """
        self._child.terminate()
        try:
            return self._child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            return self._child.wait()


def installed_version(classpath: str) -> str:
    """Return the version of MirrorMaker 2 in a class path, taken from the name of its jar.

    Args:
        classpath: Value of `mirror.classpath`, with entries separated by colons.

    Returns:
        A version such as `3.9.1`; empty if no `connect-mirror-*.jar` is found.
    """
    jars = itertools.chain.from_iterable(_jars(part) for part in _parts(classpath))
    return next((found[1] for jar in jars if (found := _JAR.fullmatch(jar.name))), "")


def _parts(classpath: str) -> list[str]:
    return [part for part in classpath.split(":") if part]


def _jars(part: str) -> Iterable[Path]:
    return Path(part[:-1]).glob("*.jar") if part.endswith("/*") else [Path(part)]


def prepare_command(config: Config, excluded: Collection[str] = ()) -> list[str]:
    """Write the configuration files of MirrorMaker 2, and return the command that starts it.

    The files are written to `mirror.work_dir` and replace those of earlier runs. The command is not
    executed.

    Args:
        config: Configuration with both clusters and the group `mirror`.
        excluded: Names of edge topics to exclude from replication.

    Returns:
        The Java executable and its arguments.

    Raises:
        ConfigError: A setting is invalid, or Java cannot use a private key.
        Unavailable: A file cannot be written.
    """
    for alias, cluster in (
        (config.kafka.edge_alias, config.kafka.edge),
        (TARGET_ALIAS, target_cluster(config)),
    ):
        check_bootstrap(alias, cluster)
        check_private_key(alias, cluster)
    work_dir: Path = config.mirror.work_dir.absolute()
    settings, log4j2 = work_dir / "mm2.properties", work_dir / "log4j2.properties"
    _write(
        secrets_path(config), render_java_properties(secret_properties(config)).encode("latin-1")
    )
    _write(
        settings,
        render_java_properties(mirror_maker_properties(config, excluded)).encode("latin-1"),
    )
    _write(log4j2, LOG4J2.format(level=config.log_level).encode())
    return [
        str(Path(config.mirror.java).absolute())
        if "/" in config.mirror.java
        else config.mirror.java,
        f"-Xmx{config.mirror.heap_mb}m",
        "-XX:+UseSerialGC",
        "-XX:+ExitOnOutOfMemoryError",
        f"-Dlog4j2.configurationFile={log4j2}",
        *(
            ["-cp", ":".join(str(Path(p).absolute()) for p in _parts(config.mirror.classpath))]
            if config.mirror.classpath
            else []
        ),
        MAIN_CLASS,
        str(settings),
    ]


def _write(path: Path, content: bytes) -> None:
    try:
        write_durably(path, content)
    except OSError as error:
        raise Unavailable(
            f"{path} cannot be written: {error.strerror}; check its disk and permissions"
        ) from error


def _kill_with_parent(parent: int) -> Callable[[], None]:
    libc = ctypes.CDLL(
        None, use_errno=True
    )  # loaded before the fork, after which only a system call is safe

    def in_child() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent died between fork and prctl
            os.kill(os.getpid(), signal.SIGKILL)

    return in_child
