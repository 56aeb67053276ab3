"""The schema registry (Apicurio): installation and settings."""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path

from hourmark_infra.jars.lockfile import read_lock
from hourmark_infra.stack.layout import Layout


def extract_archive(archive: tarfile.TarFile, folder: Path) -> None:
    """Extract all members of a trusted tar archive into a folder.

    Python versions before 3.11.4 do not filter unsafe members, so the archive must be trusted.

    Args:
        archive: Open archive.
        folder: Target folder.
    """
    if hasattr(tarfile, "data_filter"):
        archive.extractall(folder, filter="data")
    else:  # before Python 3.11.4
        archive.extractall(folder)  # noqa: S202


CONFLUENT_PATH = "/apis/ccompat/v7"


def unpack_registry(folder: Path) -> Path:
    """Extract the schema registry if necessary, and return its program folder.

    The extraction is atomic: an interrupted or concurrent call leaves no incomplete program folder.

    Args:
        folder: Folder that contains the registry's archive.

    Returns:
        The subfolder `app` of `folder`, which contains the extracted program.
    """
    target = folder / "app"
    if not target.is_dir():
        temporary = folder / f".app.{os.getpid()}"
        shutil.rmtree(temporary, ignore_errors=True)
        with tarfile.open(folder / read_lock("registry")[0].file_name) as archive:
            extract_archive(archive, temporary)
        try:
            temporary.rename(target)
        except OSError:  # a concurrent `up` has extracted the same files
            shutil.rmtree(temporary, ignore_errors=True)
    return target


def registry_options(layout: Layout) -> tuple[str, ...]:
    """Return the settings of the schema registry as JVM options.

    The registry stores schemas in an H2 database file in the data folder of the stack.

    Args:
        layout: Paths and ports of the stack.

    Returns:
        Options of the form `-Dkey=value`.
    """
    values = {
        "quarkus.http.host": layout.listening_host,
        "quarkus.http.port": str(layout.ports["registry"]),
        "quarkus.banner.enabled": "false",
        # Quarkus' default pattern; the date format that Apicurio sets is hard to read.
        "quarkus.log.console.format": "%d{yyyy-MM-dd HH:mm:ss,SSS} %-5p [%c] (%t) %s%e%n",
        "apicurio.storage.kind": "sql",
        "apicurio.storage.sql.kind": "h2",
        "apicurio.datasource.url": f"jdbc:h2:file:{layout.data / 'registry' / 'db'}",
        # By default it opens twenty connections at startup and waits at most 5 s for each; on a
        # loaded machine it exited because of that.
        "apicurio.datasource.jdbc.initial-size": "1",
        "apicurio.datasource.jdbc.min-size": "1",
        "quarkus.datasource.h2.jdbc.acquisition-timeout": "60S",
    }
    return tuple(f"-D{key}={value}" for key, value in values.items())


def find_runner_jar(app: Path) -> Path:
    """Return the path of the jar that starts the schema registry.

    Args:
        app: Program folder of the registry, as returned by `unpack_registry`.

    Raises:
        ValueError: The folder does not contain `apicurio-registry-app-*-runner.jar`.
    """
    return min(app.glob("apicurio-registry-app-*-runner.jar"))
