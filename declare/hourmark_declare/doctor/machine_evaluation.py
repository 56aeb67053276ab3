"""Evaluates Python, resource limits, disks and Java of a machine. No I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from hourmark_declare.doctor.check_result import (
    DoctorCheckResult,
    finding_result,
    passed_result,
    skipped_result,
)

CHECK: Final = "machine"
PYTHON_MIN: Final = (3, 11)
FREE_BYTES_MIN: Final = 1 << 30  # a component stops when its state folder is full
FREE_NAMES_MIN: Final = 10_000


@dataclasses.dataclass(frozen=True, slots=True)
class FreeSpace:
    """The free space of a file system that is available to users other than root.

    Attributes:
        bytes: Available bytes.
        inodes: Available inodes; None if the file system does not limit them.
    """

    bytes: int
    inodes: int | None


def evaluate_python(version: Sequence[int]) -> DoctorCheckResult:
    """Check whether Hourmark supports a Python version.

    Args:
        version: Version components, such as (3, 11, 7).

    Returns:
        A finding if the version is older than 3.11 (`PYTHON_MIN`); otherwise a passed result.
    """
    needed, given = (".".join(map(str, v)) for v in (PYTHON_MIN, version[:3]))
    if tuple(version[:2]) < PYTHON_MIN:
        return finding_result(
            CHECK,
            "Python",
            f"version {given}, needed is {needed}",
            f"install Python {needed} or newer",
        )
    return passed_result(CHECK, "Python", f"version {given}")


def evaluate_open_files(hard: int | None, connections_max: int, others: int) -> DoctorCheckResult:
    """Check whether a delivery service can open enough files for its connections.

    Only the hard limit matters, because the service raises its soft limit to the hard limit.

    Args:
        hard: Hard limit on the number of open files of a process; None if unlimited.
        connections_max: Value of the setting `service.connections_max`.
        others: Number of files that the service opens in addition to connections.

    Returns:
        A finding if `hard` is less than `connections_max + others`; otherwise a passed result.
    """
    needed = connections_max + others
    if hard is not None and hard < needed:
        return finding_result(
            CHECK,
            "open files",
            f"at most {hard}, and a delivery service needs {needed} (service.connections_max)",
            "allow more (ulimit -Hn, LimitNOFILE), or set service.connections_max to "
            f"{max(0, hard - others)} at most",
        )
    return passed_result(
        CHECK,
        "open files",
        f"at most {'any number' if hard is None else hard}, {needed} are needed",
    )


def evaluate_free_space(setting: str, folder: str, space: FreeSpace | None) -> DoctorCheckResult:
    """Check whether the file system of a folder has enough free space and inodes.

    Args:
        setting: Name of the setting that contains the path, such as `tailer.state_dir`.
        folder: Path of the folder.
        space: Available space; None if the folder does not exist.

    Returns:
        A skipped result if the folder does not exist. A finding if less than 1 GiB
        (`FREE_BYTES_MIN`) or fewer than 10,000 inodes (`FREE_NAMES_MIN`) are available. Otherwise,
        a passed result.
    """
    subject = f"{setting} ({folder})"
    if space is None:
        return skipped_result(
            CHECK, subject, "it does not exist: its component has not run on this machine"
        )
    if space.bytes < FREE_BYTES_MIN:
        return finding_result(
            CHECK,
            subject,
            f"{space.bytes >> 20} MiB are free, at least {FREE_BYTES_MIN >> 20} should be",
            f"free space on its disk, or move it ({setting}); its component stops when it is full",
        )
    if space.inodes is not None and space.inodes < FREE_NAMES_MIN:
        return finding_result(
            CHECK,
            subject,
            f"{space.inodes} files more may be made on its disk (inodes), at "
            "least "
            f"{FREE_NAMES_MIN} should be",
            "delete files that are not needed: df -i shows the disk",
        )
    return passed_result(CHECK, subject, f"{space.bytes >> 20} MiB are free")


def evaluate_java(
    setting: str, executable: str, version: int | None, allowed: Sequence[int]
) -> DoctorCheckResult:
    """Check whether a Java executable runs and has a supported version.

    Args:
        setting: Name of the setting that contains the executable, such as `mirror.java`.
        executable: Path of the executable, or its name on the search path.
        version: Major Java version; None if the executable cannot be run.
        allowed: Supported major versions.

    Returns:
        A finding if the executable cannot be run or its version is not supported; otherwise a
        passed result.
    """
    subject, versions = f"Java of {setting} ({executable})", " or ".join(map(str, allowed))
    if version is None:
        return finding_result(
            CHECK, subject, "it does not run", f"install Java {versions}, and name it in {setting}"
        )
    if version not in allowed:
        return finding_result(
            CHECK,
            subject,
            f"version {version}, needed is {versions}",
            f"name a Java {versions} in {setting}",
        )
    return passed_result(CHECK, subject, f"version {version}")
