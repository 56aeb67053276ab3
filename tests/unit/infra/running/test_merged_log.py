"""The log of `hourmark run`: each line once, and a stack trace as one line that names its cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from hourmark_infra.running.merged_log import MergedLog

RECORD = "2026-11-29T21:03:04.512Z INFO hourmark_etl.driver: staged 12 events in 0.3 s"
SPARK = """\
26/11/29 21:03:05 ERROR MicroBatchExecution: Query [id = 1] terminated with error
org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed: \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/pyspark/worker.py", line 1247, in main
    process()
hourmark.errors.Unavailable: HDFS does not answer

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:581)
Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.failJob(DAGScheduler.scala:2898)
Caused by: java.net.ConnectException: Connection refused
\tat java.base/sun.nio.ch.Net.pollConnect(Native Method)
\t... 32 more
"""
PY4J = """\
2026-11-29T21:03:06.001Z ERROR root: Exception while sending command.
Traceback (most recent call last):
  File "/x/py4j/clientserver.py", line 527, in send_command
    raise Py4JNetworkError("Answer from Java side is empty")
py4j.protocol.Py4JNetworkError: Answer from Java side is empty

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/x/py4j/java_gateway.py", line 1053, in send_command
    response = connection.send_command(command)
py4j.protocol.Py4JNetworkError: Error while sending or receiving
"""


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def etl(tmp_path: Path, said: list[str]) -> tuple[Path, MergedLog]:
    file = tmp_path / "etl.log"
    file.touch()
    return file, MergedLog({"etl": file}, said.append)


def test_one_log_has_each_whole_line_once_with_its_name(tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "a").write_text("of an earlier run\n")
    log = MergedLog({"a": tmp_path / "a", "later": tmp_path / "b"}, said.append)
    for text in ("first\nsec", "ond\n", "", "z" * (1 << 17) + "\nend\n"):
        with (tmp_path / "a").open("a") as file:
            file.write(text)
        log.report_new_lines()
    (tmp_path / "b").write_bytes(b"\xff\n")
    log.report_new_lines()
    assert said[:2] == ["a     | first", "a     | second"]
    assert "".join(line.removeprefix("a     | ") for line in said[2:-2]) == "z" * (1 << 17)
    assert said[-2:] == ["a     | end", "later | \ufffd"]


def test_a_stack_trace_is_one_line_that_names_its_cause(
    etl: tuple[Path, MergedLog], said: list[str]
) -> None:
    file, log = etl
    file.write_text(f"{RECORD}\n{SPARK}{PY4J}{RECORD}\n")
    log.report_new_lines()
    assert said == [
        f"etl | {RECORD}",
        "etl | 26/11/29 21:03:05 ERROR MicroBatchExecution: Query [id = 1] terminated with error: "
        f"java.net.ConnectException: Connection refused (stack trace of 11 lines in {file})",
        "etl | 2026-11-29T21:03:06.001Z ERROR root: Exception while sending command.: "
        "py4j.protocol.Py4JNetworkError: Error while sending or receiving "
        f"(stack trace of 11 lines in {file})",
        f"etl | {RECORD}",
    ]


def test_a_stack_trace_that_is_written_in_parts_is_one_line(
    etl: tuple[Path, MergedLog], said: list[str]
) -> None:
    file, log = etl
    for line in SPARK.splitlines(keepends=True):
        with file.open("a") as opened:
            opened.write(line)
        log.report_new_lines()
    assert said[0].endswith("terminated with error") and len(said) == 1, "it may still go on"
    log.report_new_lines()
    assert said[1:] == [
        f"etl | java.net.ConnectException: Connection refused (stack trace of 11 lines in {file})"
    ]


def test_a_stack_trace_at_the_end_is_reported_when_the_log_is_closed(
    etl: tuple[Path, MergedLog], said: list[str]
) -> None:
    file, log = etl
    file.write_text(PY4J)
    log.close()
    assert len(said) == 1 and "Error while sending or receiving" in said[0]


def test_lines_before_a_stack_trace_without_a_record_are_kept(
    etl: tuple[Path, MergedLog], said: list[str]
) -> None:
    file, log = etl
    warning = "hourmark: the ledger is locked"
    python, java = PY4J.partition("\n")[2], SPARK.partition("\n")[2]
    file.write_text(f"{warning}\n{python}{RECORD}\n")
    log.report_new_lines()
    with file.open("a") as opened:
        opened.write(f"{warning}\n{java}")
    log.close()
    assert [line.partition(" (stack")[0] for line in said] == [
        f"etl | {warning}",
        "etl | py4j.protocol.Py4JNetworkError: Error while sending or receiving",
        f"etl | {RECORD}",
        f"etl | {warning}",
        "etl | java.net.ConnectException: Connection refused",
    ]


def test_lines_without_a_stack_trace_are_kept(etl: tuple[Path, MergedLog], said: list[str]) -> None:
    file, log = etl
    lines = [
        "OpenJDK 64-Bit Server VM warning: Sharing is only supported for boot loader classes",
        RECORD,
        "hourmark: the ledger is locked:",
        "    process 12 holds it",
    ]
    file.write_text("\n".join(lines) + "\n")
    log.report_new_lines()
    assert said == [f"etl | {line}" for line in lines]


def test_a_stack_trace_within_a_message_is_cut_off(
    etl: tuple[Path, MergedLog], said: list[str]
) -> None:
    file, log = etl
    start = "2026-11-29T21:03:04.512Z WARNING hourmark_etl.driver: a Spark job failed: o12.collect"
    file.write_text(
        rf"{start}.\n: org.apache.spark.SparkException: full\n\tat a.b.C.d(C.java)" + "\n"
    )
    log.report_new_lines()
    assert said == [
        rf"etl | {start}.\n: org.apache.spark.SparkException: full (more in {file})",
    ]


def test_warnings_of_spark_are_in_the_log_file_only(
    etl: tuple[Path, MergedLog], said: list[str]
) -> None:
    file, log = etl
    file.write_text(
        "WARNING: Using incubator modules: jdk.incubator.vector\n"
        "Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties\n"
        'Setting default log level to "WARN".\n'
        "To adjust logging level use sc.setLogLevel(newLevel).\n"
        "26/11/29 21:03:05 WARN NativeCodeLoader: Unable to load native-hadoop library\n"
        f"{RECORD}\n"
        "26/11/29 21:03:06 ERROR Executor: Exception in task 0.0\n"
        "26/11/29 21:03:07 WARN TaskSetManager: Lost task 0.0 in stage 3.0\n"
        "Caused by: java.net.ConnectException: Connection refused\n"
        "\tat java.base/sun.nio.ch.Net.pollConnect(Native Method)\n"
    )
    log.close()
    assert [line.removeprefix("etl | ") for line in said] == [
        RECORD,
        "26/11/29 21:03:06 ERROR Executor: Exception in task 0.0",
        "26/11/29 21:03:07 WARN TaskSetManager: Lost task 0.0 in stage 3.0: "
        "java.net.ConnectException: Connection refused "
        f"(stack trace of 2 lines in {file})",
    ]
