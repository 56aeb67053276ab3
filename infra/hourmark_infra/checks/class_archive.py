"""A class-data archive for the Spark drivers of the tests, which halves the CPU time of their start.

The tests start Spark often, and each start loads and verifies the same classes. Java maps them from
an archive instead if `-XX:SharedArchiveFile` names one that was written by the same Java with the
same class path. Otherwise, Java ignores the archive.

The other servers start less often, and most of their start is work of their own.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from importlib.util import find_spec
from pathlib import Path

from hourmark_infra.java.find import find_java

# Arguments of spark-submit, which pyspark passes to it when it starts a driver.
SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
# A driver of a test lives for a minute, in which a second compiler and a concurrent collector cost
# more than they save. Java uses all of an archive only with the collector that wrote it.
_SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def archive_file() -> Path | None:
    """Return the path of the class-data archive for Spark, with the current Java and pyspark.

    A Spark driver starts faster if Java loads its classes from such an archive (class-data
    sharing). The archive is stored in the virtual environment.

    Returns:
        The path, whether or not the file exists. None if Java is not installed, or if its folder
        has no file `release`, which identifies the version.
    """
    java = find_java(os.environ)
    if java is None or not (release := java.resolve().parents[1] / "release").is_file():
        return None
    parts = (release.read_bytes(), os.fsencode(_spark_folder()))
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]
    return Path(sys.prefix) / f"spark-classes-{digest}.jsa"


def submit_arguments() -> dict[str, str]:
    """Return the environment variable that makes Spark drivers of tests use less CPU time.

    Java loads the classes of Spark faster from the class-data archive, and uses the compiler and
    the garbage collector that suit short-lived processes.

    Returns:
        The name and value of `PYSPARK_SUBMIT_ARGS`. Empty if the archive does not exist, or if the
        variable is already set in this process.
    """
    file = archive_file()
    if file is None or not file.is_file() or SUBMIT_ARGUMENTS in os.environ:
        return {}
    option = f"spark.driver.defaultJavaOptions={_SHORT_LIVED} -XX:SharedArchiveFile={file}"
    return {SUBMIT_ARGUMENTS: f"--conf '{option}' pyspark-shell"}


def main() -> None:
    """Create the class-data archive that makes Spark drivers start faster, unless it exists.

    A Spark driver is started for this purpose. It runs a query, so that Java loads the classes
    that the archive must contain.
    """
    file = archive_file()
    if file is None or file.exists():
        return
    unfinished = file.with_suffix(f".{os.getpid()}")
    try:
        _run_driver(f"-XX:ArchiveClassesAtExit={unfinished}")
        unfinished.rename(file)
    finally:
        unfinished.unlink(missing_ok=True)


def _spark_folder() -> str:
    spec = find_spec("pyspark")
    return str(spec and spec.origin)


def _run_driver(java_option: str) -> None:
    # Java writes the archive when it exits, so this function waits for the exit.
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config(
            "spark.driver.extraJavaOptions",
            f"{_SHORT_LIVED} {java_option}",
        )
        .getOrCreate()
    )
    session.range(10).mapInArrow(lambda batches: batches, "id long").selectExpr("sum(id)").collect()
    session.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    process = gateway.proc
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    process.wait()


if __name__ == "__main__":
    main()
