"""What the doctor says of a machine: each fault planted is found, with a next step."""

from __future__ import annotations

import pytest

from hourmark_declare.doctor.finding import Answer, Verdict
from hourmark_declare.doctor.machine_judged import (
    Room,
    java_judged,
    open_files_judged,
    python_judged,
    room_judged,
)

GIB = 1 << 30
FOLDER = ("etl.ledger", "/var/lib/hourmark")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (python_judged((3, 10, 14)), "version 3.10.14, needed is 3.11"),
        (
            open_files_judged(1024, 2048, 256),
            "at most 1024, and a delivery service needs 2304 (service.connections_max)",
        ),
        (
            room_judged(*FOLDER, Room(GIB - (1 << 20), None)),
            "1023 MiB are free, at least 1024 should be",
        ),
        (
            room_judged(*FOLDER, Room(GIB, 9)),
            "9 files more may be made on its disk (inodes), at least 10000 should be",
        ),
        (java_judged("mirror.java", "java", None, (17, 21)), "it does not run"),
        (java_judged("mirror.java", "java", 11, (17, 21)), "version 11, needed is 17 or 21"),
    ],
)
def test_a_fault_is_found(answer: Answer, said: str) -> None:
    assert (answer.verdict, answer.seen) == (Verdict.FINDING, said)
    assert answer.to_do


@pytest.mark.parametrize(
    "answer",
    [
        python_judged((3, 11, 0)),
        python_judged((3, 14, 1)),
        open_files_judged(2304, 2048, 256),
        open_files_judged(None, 2048, 256),
        room_judged(*FOLDER, Room(GIB, None)),
        room_judged(*FOLDER, Room(GIB, 10_000)),
        java_judged("mirror.java", "java", 17, (17, 21)),
    ],
)
def test_what_suffices_is_well(answer: Answer) -> None:
    assert answer.verdict is Verdict.WELL and not answer.to_do


def test_of_a_folder_that_is_not_there_nothing_is_said() -> None:
    assert room_judged(*FOLDER, None).verdict is Verdict.NOT_ASKED
