"""Roles of the containers: the program that each executes and the files for which it waits."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from hourmark.clock import Clock
from hourmark.commands.canary import CANARY, DECLARATION
from hourmark.errors import UsageError
from hourmark.process.durable import write_durably
from hourmark_infra import jars
from hourmark_infra.containers import site_setup
from hourmark_infra.containers.settings import (
    CANARY_PORT,
    EVERY_ADDRESS,
    LOGS,
    TYPES,
    WATCH_PORT,
    render_settings,
)
from hourmark_infra.containers.site import SPARK_PORT, ContainerSite
from hourmark_infra.containers.whole_stack import run_whole_stack
from hourmark_infra.jars.cache import cache_root, print_progress
from hourmark_infra.java.find import java_executable
from hourmark_infra.stack import lifecycle
from hourmark_infra.stack.layout import Layout
from hourmark_infra.stack.registry import unpack_registry
from hourmark_infra.stack.servers import Programs, Server, server_table
from hourmark_infra.stack.settings import write_settings

_WAIT_S: Final = 1.0
_RETRY_S: Final = 5.0  # between attempts to apply the types, while servers start
WORKER_WEB_PORT: Final = 8081
LINES_PER_SECOND: Final = 5  # of the role `application`
ROTATE_BYTES: Final = 1 << 20
_CANARY_METRICS: Final = ("--metrics-host", EVERY_ADDRESS, "--metrics-port", str(CANARY_PORT))
_ROTATED_FILES_MAX: Final = 99  # about a day's log at this rate


def write_log_forever(log: Path, clock: Clock) -> None:
    """Append five sample log lines per second to a file. Never returns.

    Each line is written without buffering. The file is rotated by renaming when it reaches 1 MiB.

    Args:
        log: Path of the log file.
        clock: Clock used for the timestamps of the lines and for waiting.
    """
    rng = random.Random(clock.now_ms())  # noqa: S311  # sample data, not a secret
    number = 0
    while True:
        rotate_if_full(log)
        with log.open("ab", buffering=0) as file:
            while file.tell() < ROTATE_BYTES:
                number += 1
                file.write(render_line(number, clock.now_ms(), rng))
                clock.sleep(1 / LINES_PER_SECOND)


def render_line(number: int, now_ms: int, rng: random.Random) -> bytes:
    """Return a sample log line in syslog format (RFC 5424), including the line feed.

    Args:
        number: Sequence number of the line. Every tenth line contains plain text; all others
            contain a `page-viewed` event as a JSON object.
        now_ms: Time of the line in Unix milliseconds.
        rng: Random number generator for the field values.
    """
    now = (
        datetime.fromtimestamp(now_ms / 1000, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )
    head = f"<14>1 {now} application program {number}"
    if number % 10 == 0:
        return f"{head} app-log - {number} pages were shown\n".encode()
    page = {
        "page": f"/page/{rng.randrange(100)}",
        "milliseconds": rng.randrange(500),
        "user": f"user-{rng.randrange(1000)}",
    }
    return f"{head} page-viewed - {json.dumps(page)}\n".encode()


def rotate_if_full(log: Path) -> None:
    """Rotate a log file by renaming if it has reached 1 MiB.

    `app.log` becomes `app.log.1`, `app.log.1` becomes `app.log.2`, and so on. The previous
    `app.log.99` is deleted.

    Args:
        log: Path of the log file. Nothing is done if it does not exist.
    """
    if not log.exists() or log.stat().st_size < ROTATE_BYTES:
        return
    for source, target in _renames(log):
        if source.exists():
            source.replace(target)


def _renames(log: Path) -> Iterator[tuple[Path, Path]]:
    for number in range(_ROTATED_FILES_MAX, 0, -1):
        yield (
            log.with_name(f"{log.name}.{number - 1}" if number > 1 else log.name),
            log.with_name(f"{log.name}.{number}"),
        )


class Container(NamedTuple):
    """The container in which this process runs, and the set of containers (site) it belongs to.

    Attributes:
        name: Host name of the container, which is also its role, such as `edge-1`.
        site: Number and addresses of the site's servers.
        home: The `HOURMARK_HOME` folder of this container.
        shared: Folder of the volume that all containers of the site share.
        clock: Clock used for waiting.
    """

    name: str
    site: ContainerSite
    home: Path
    shared: Path
    clock: Clock

    @property
    def layout(self) -> Layout:
        return self.site.layout(self.home)

    def server(self) -> Server | None:
        """Return the definition of the server that this container runs.

        Returns:
            The server with the container's name; None if the container runs another program, such
            as `tailer`.

        Raises:
            FileNotFoundError: The role `setup` has not created the site's files yet.
        """
        return server_table(
            self.layout, installed_programs, site_setup.read_cluster_ids(self.shared), mirror=False
        ).get(self.name)

    def wait_for(self, name: str) -> None:
        """Wait until a file exists in the shared volume. There is no timeout.

        If the file does not exist yet, a message with its name is written to stderr.

        Args:
            name: Path of the file, relative to the volume.
        """
        reported = False
        while not (self.shared / name).exists():
            if not reported:
                print_progress(f"{self.name}: waiting for {self.shared / name}")
                reported = True
            self.clock.sleep(_WAIT_S)


def run_role(container: Container, arguments: list[str]) -> None:
    """Run the program of a container's role.

    The role is the host name of the container, such as `edge-1` (a Kafka broker) or `tailer`. Most
    programs replace this process with `exec`, so the function does not return. It only returns for
    roles that finish, such as `setup` and `types`. All roles except `setup` and `whole` first wait
    until the role `setup` has created the site's files.

    Args:
        container: The container in which this process runs.
        arguments: Additional arguments for the program.

    Raises:
        UsageError: The role is unknown, or the site has no server of this name.
        ConfigError: The site was started first with another size.
        Unavailable: The server's data folder cannot be formatted.
        SystemExit: The role `whole` has finished; the exception contains its exit code.
    """
    if container.name == "setup":
        site_setup.check_size(container.shared, container.site)
        created = site_setup.create_site_files(container.shared)
        site_setup.record_size(container.shared, container.site)
        return print_progress(
            f"setup: {'created the' if created else 'found existing'} cluster IDs and certificates"
        )
    if container.name == "whole":  # needs no site: it contains a complete stack
        sys.exit(
            run_whole_stack(
                container.home, container.site.bucket_seconds, os.environ, open_files_limit()
            )
        )
    kind = role_kind(container.name)
    container.wait_for(site_setup.READY)
    site_setup.check_size(container.shared, container.site)
    programs = installed_programs()
    datanode = container.name if kind == "datanode" else container.layout.shape.datanodes[0]
    text = render_settings(
        container.site,
        container.home,
        programs,
        container.name,
        container.shared,
        open_files_limit(),
    )
    write_settings(container.layout, text, datanode)
    return KINDS[kind](container, arguments)


def open_files_limit() -> int:
    """Return the maximum number of open files that a process in this container may have.

    Returns:
        The hard limit of `RLIMIT_NOFILE`; `resource.RLIM_INFINITY` if there is no limit.
    """
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def installed_programs() -> Programs:
    """Return the paths of the server programs in the container's image.

    Programs that the image has not cached yet are downloaded. An image without a jar cache runs no
    servers; the paths are then placeholders that do not exist.
    """
    if not (cache_root() / "jars").is_dir():
        return Programs(Path("java"), Path("kafka"), Path("hadoop"), Path("registry"))
    kafka, hadoop, registry = (
        jars.ensure(name, java_executable) for name in ("kafka", "hadoop", "registry")
    )
    return Programs(java_executable(), kafka, hadoop, unpack_registry(registry))


def role_kind(name: str) -> str:
    """Return the name of a container's role without its number.

    Args:
        name: Name of the role, such as `edge-1`.

    Returns:
        A key of `KINDS`, such as `edge`.

    Raises:
        UsageError: The role is unknown. The message lists the valid roles.
    """
    kind = name.rstrip("0123456789").rstrip("-")
    if kind not in KINDS:
        raise UsageError(
            f"unknown role {name!r}; valid roles are setup, whole, {', '.join(KINDS)}, where "
            "servers take a number, for example edge-1"
        )
    return kind


def _run_server(container: Container, _: list[str]) -> NoReturn:
    server = container.server()
    if server is None:
        raise UsageError(
            f"this site has no {container.name}; the SITE_… environment variables set its size"
        )
    environment = lifecycle.server_environment(installed_programs().java)
    server.log.parent.mkdir(parents=True, exist_ok=True)
    lifecycle.prepare_data_folder(server, environment)
    _exec(list(server.command()), environment)


def _hourmark_role(
    *words: str, after: str | None = None
) -> Callable[[Container, list[str]], NoReturn]:
    def execute(container: Container, arguments: list[str]) -> NoReturn:
        if after is not None:
            container.wait_for(after)
        _exec(_hourmark_command(*words, *arguments), dict(os.environ))

    return execute


def _apply_types(container: Container, _: list[str]) -> None:
    # Retried until all required servers have started.
    command = _hourmark_command(
        "types",
        "apply",
        "--dir",
        str(prepare_declarations(TYPES, container.home / "types", canary=container.site.canary)),
    )
    while subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode != 0:
        print_progress(f"types: trying again in {_RETRY_S:g} s")
        container.clock.sleep(_RETRY_S)
    write_durably(container.shared / site_setup.APPLIED, b"")


def prepare_declarations(types: Path, own: Path, *, canary: bool) -> Path:
    """Return a folder of type declarations, including the canary type if required.

    The canary is a test event that is sent once a minute to monitor the pipeline.

    Args:
        types: Folder of the declarations in the image.
        own: Folder for a copy of `types`; an existing folder is replaced. Only used if `canary` is
            True.
        canary: Whether the canary type must be declared.

    Returns:
        `own` if `canary` is True, otherwise `types`.
    """
    if not canary:
        return types
    shutil.rmtree(own, ignore_errors=True)
    shutil.copytree(types, own)
    (own / f"{CANARY}.toml").write_text(DECLARATION)
    return own


def _run_etl(container: Container, arguments: list[str]) -> NoReturn:
    container.wait_for(site_setup.APPLIED)
    conf = {
        "spark.driver.host": container.name,  # executors reach it by this name
        "spark.driver.bindAddress": EVERY_ADDRESS,
        "spark.driver.memory": "1g",
        "spark.executor.memory": "640m",
        "spark.executor.cores": "1",
        "spark.cores.max": "2",
    }
    settings = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    submit, job = (
        Path(sys.executable).with_name("spark-submit"),
        Path(__file__).parents[3] / "etl" / "job.py",
    )
    config = ["--config", str(container.layout.config_file)]
    command = [
        str(submit),
        "--master",
        container.site.spark_master,
        *settings,
        str(job),
        *config,
        *arguments,
    ]
    _exec(command, _spark_environment(container))


def _run_spark_master(container: Container, _: list[str]) -> NoReturn:
    listening = ["--host", container.name, "--port", str(SPARK_PORT), "--webui-port", "8080"]
    _exec(
        [_spark_class(), "org.apache.spark.deploy.master.Master", *listening],
        _spark_environment(container),
    )


def _run_spark_worker(container: Container, _: list[str]) -> NoReturn:
    work = container.home / "work"
    work.mkdir(parents=True, exist_ok=True)
    listening = ["--host", container.name, "--webui-port", str(WORKER_WEB_PORT)]
    limits = ["--cores", "1", "--memory", "1g", "--work-dir", str(work)]
    command = [
        _spark_class(),
        "org.apache.spark.deploy.worker.Worker",
        *listening,
        *limits,
        container.site.spark_master,
    ]
    _exec(command, _spark_environment(container))


def _spark_home() -> Path:
    # An image may be built without pyspark.
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise UsageError("this image contains no Spark; use the image hourmark-java for this role")
    return Path(spec.origin).parent


def _spark_class() -> str:
    return str(_spark_home() / "bin" / "spark-class")


def _spark_environment(container: Container) -> dict[str, str]:
    local = container.home / "spark"
    local.mkdir(parents=True, exist_ok=True)
    return {
        **lifecycle.server_environment(installed_programs().java),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(_spark_home()),
        "SPARK_LOCAL_DIRS": str(local),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
    }


def _run_application(container: Container, _: list[str]) -> None:
    write_log_forever(LOGS / "app.log", container.clock)


def _hourmark_command(*words: str) -> list[str]:
    return [sys.executable, "-m", "hourmark", *words]


def _exec(command: list[str], environment: Mapping[str, str]) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    # Without a shell, so that the server receives the signals.
    os.execve(command[0], command, environment)  # noqa: S606


KINDS: Final[dict[str, Callable[[Container, list[str]], None]]] = {
    **dict.fromkeys(("edge", "central", "namenode", "datanode", "registry"), _run_server),
    "mirror": _hourmark_role("mirror", "run"),
    "mirror-watch": _hourmark_role("mirror", "watch", "--metrics-port", str(WATCH_PORT)),
    "canary": _hourmark_role("canary", "run", *_CANARY_METRICS),
    "canary-check": _hourmark_role(
        "canary",
        "check",
        "--every",
        "10",
        *_CANARY_METRICS,
        after=site_setup.APPLIED,
    ),
    "delivery": _hourmark_role("serve"),
    "tailer": _hourmark_role("tail"),
    "types": _apply_types,
    "etl": _run_etl,
    "spark-master": _run_spark_master,
    "spark-worker": _run_spark_worker,
    "application": _run_application,
    "operator": _hourmark_role(),
}
