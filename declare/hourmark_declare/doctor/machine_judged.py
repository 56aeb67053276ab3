"""From what this machine has to findings. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from hourmark_declare.doctor.finding import Answer, finding, not_asked, well

CHECK: Final = "machine"
PYTHON_MIN: Final = (3, 11)
FREE_BYTES_MIN: Final = 1 << 30  # a state folder that fills up stops its component
FREE_NAMES_MIN: Final = 10_000


@dataclasses.dataclass(frozen=True, slots=True)
class Room:
    """What is free where a folder stands, for those who are not root. `names`: inodes; None where
    the disk has no limit.
    """

    bytes: int
    names: int | None


def python_judged(version: Sequence[int]) -> Answer:
    """Whether this Python is new enough."""
    needed, given = (".".join(map(str, v)) for v in (PYTHON_MIN, version[:3]))
    if tuple(version[:2]) < PYTHON_MIN:
        return finding(
            CHECK,
            "Python",
            f"version {given}, needed is {needed}",
            f"install Python {needed} or newer",
        )
    return well(CHECK, "Python", f"version {given}")


def open_files_judged(hard: int | None, connections_max: int, others: int) -> Answer:
    """Whether a delivery service started from here could have its connections.

    It raises the soft limit to what it needs itself.

    `hard`: None without a limit.
    """
    needed = connections_max + others
    if hard is not None and hard < needed:
        return finding(
            CHECK,
            "open files",
            f"at most {hard}, and a delivery service needs {needed} (service.connections_max)",
            "allow more (ulimit -Hn, LimitNOFILE), or set service.connections_max to "
            f"{max(0, hard - others)} at most",
        )
    return well(
        CHECK,
        "open files",
        f"at most {'any number' if hard is None else hard}, {needed} are needed",
    )


def room_judged(setting: str, folder: str, room: Room | None) -> Answer:
    """Whether the disk of a state folder has room; `room` None where the folder does not exist."""
    subject = f"{setting} ({folder})"
    if room is None:
        return not_asked(
            CHECK, subject, "it is not there: what uses it has not run on this machine"
        )
    if room.bytes < FREE_BYTES_MIN:
        return finding(
            CHECK,
            subject,
            f"{room.bytes >> 20} MiB are free, at least {FREE_BYTES_MIN >> 20} should be",
            f"free space on its disk, or move it ({setting}); where it is full, what uses it stops",
        )
    if room.names is not None and room.names < FREE_NAMES_MIN:
        return finding(
            CHECK,
            subject,
            f"{room.names} files more may be made on its disk (inodes), at "
            "least "
            f"{FREE_NAMES_MIN} should be",
            "delete files that are not needed: df -i shows the disk",
        )
    return well(CHECK, subject, f"{room.bytes >> 20} MiB are free")


def java_judged(
    setting: str, executable: str, version: int | None, allowed: Sequence[int]
) -> Answer:
    """Whether the Java that would be started is of an allowed version; `version` None where it does
    not run.
    """
    subject, versions = f"Java of {setting} ({executable})", " or ".join(map(str, allowed))
    if version is None:
        return finding(
            CHECK, subject, "it does not run", f"install Java {versions}, and name it in {setting}"
        )
    if version not in allowed:
        return finding(
            CHECK,
            subject,
            f"version {version}, needed is {versions}",
            f"name a Java {versions} in {setting}",
        )
    return well(CHECK, subject, f"version {version}")
