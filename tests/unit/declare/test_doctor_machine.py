"""What the doctor says of a machine: each fault planted is found, with a next step."""

from __future__ import annotations

import pytest

from hourmark_declare.doctor.check_result import CheckStatus, DoctorCheckResult
from hourmark_declare.doctor.machine_evaluation import (
    FreeSpace,
    evaluate_free_space,
    evaluate_java,
    evaluate_open_files,
    evaluate_python,
)

GIB = 1 << 30
FOLDER = ("etl.ledger", "/var/lib/hourmark")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (evaluate_python((3, 10, 14)), "version 3.10.14, needed is 3.11"),
        (
            evaluate_open_files(1024, 2048, 256),
            "at most 1024, and a delivery service needs 2304 (service.connections_max)",
        ),
        (
            evaluate_free_space(*FOLDER, FreeSpace(GIB - (1 << 20), None)),
            "1023 MiB are free, at least 1024 should be",
        ),
        (
            evaluate_free_space(*FOLDER, FreeSpace(GIB, 9)),
            "9 files more may be made on its disk (inodes), at least 10000 should be",
        ),
        (evaluate_java("mirror.java", "java", None, (17, 21)), "it does not run"),
        (evaluate_java("mirror.java", "java", 11, (17, 21)), "version 11, needed is 17 or 21"),
    ],
)
def test_a_fault_is_found(answer: DoctorCheckResult, said: str) -> None:
    assert (answer.verdict, answer.seen) == (CheckStatus.FINDING, said)
    assert answer.to_do


@pytest.mark.parametrize(
    "answer",
    [
        evaluate_python((3, 11, 0)),
        evaluate_python((3, 14, 1)),
        evaluate_open_files(2304, 2048, 256),
        evaluate_open_files(None, 2048, 256),
        evaluate_free_space(*FOLDER, FreeSpace(GIB, None)),
        evaluate_free_space(*FOLDER, FreeSpace(GIB, 10_000)),
        evaluate_java("mirror.java", "java", 17, (17, 21)),
    ],
)
def test_what_suffices_is_well(answer: DoctorCheckResult) -> None:
    assert answer.verdict is CheckStatus.PASSED and not answer.to_do


def test_of_a_folder_that_is_not_there_nothing_is_said() -> None:
    assert evaluate_free_space(*FOLDER, None).verdict is CheckStatus.SKIPPED
