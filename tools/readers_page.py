"""Generate the table of docs/reference/readers.md by reading files with each program.

Run `python -m tools.readers_page` after a change of a codec, a file format or a reader's version.
The command writes an hour with the product's own writers: as Avro with each codec, and as Parquet.
Each reader computes the number of events, the sum of a field and the earliest time, which are
compared with what was written. Readers in Python run in an environment that the command creates;
Spark and Java run with the jars of the installed pyspark. Packages are downloaded unless they are
in the caches of uv and Ivy.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import fastavro
import numpy as np
import pyspark
from tools.uv import uv

from hourmark.avro.framing import event_schema
from hourmark.config.groups import AvroCodec
from hourmark_etl.buckets.avro_container import ContainerWriter
from hourmark_etl.buckets.parquet_rows import DatumConverter
from hourmark_etl.closing.write.parquet_files import ParquetFiles
from hourmark_etl.storage import LocalDisk
from hourmark_infra.java.find import find_java

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "reference" / "readers.md"
_BEGIN: Final = "<!-- begin of the table that tools/readers_page.py generates -->\n"
_END: Final = "<!-- end of the table -->\n"
SPARK_AVRO: Final = f"org.apache.spark:spark-avro_2.13:{pyspark.__version__}"
EVENTS: Final = 20
_HOUR_S: Final = 1_764_478_800  # 2025-11-30T05:00:00Z
_BYTES: Final = 3_045
EXPECTED: Final = f"{EVENTS} {EVENTS * _BYTES} {_HOUR_S * 1000}"


class FileForm(NamedTuple):
    """A form of data files.

    Attributes:
        title: Heading of its column in the table.
        name: Name of the file that `write_hour` creates.
        codec: Codec of an Avro file; None for Parquet.
    """

    title: str
    name: str
    codec: AvroCodec | None


FORMS: Final = (
    FileForm("Avro, `deflate`", "deflate.avro", "deflate"),
    FileForm("Avro, `zstandard`", "zstandard.avro", "zstandard"),
    FileForm("Parquet", "hour.parquet", None),
)


class Reader(NamedTuple):
    """A program that reads data files.

    Attributes:
        name: Name and version, as shown in the table.
        avro: Program that prints the number of events, the sum of `bytes` and the earliest time in
            Unix milliseconds of the Avro file in `sys.argv[1]`; empty if there is no such program.
        parquet: The same for a Parquet file.
        packages: Requirements of the environment of the program, for Python.
    """

    name: str
    avro: str
    parquet: str
    packages: tuple[str, ...] = ()


_FASTAVRO: Final = """
import sys, fastavro
rows = list(fastavro.reader(open(sys.argv[1], "rb")))
first = min(row["event_time"] for row in rows)
print(len(rows), sum(row["bytes"] for row in rows), round(first.timestamp() * 1000))
"""
_AVRO: Final = """
import sys, avro.datafile, avro.io
rows = list(avro.datafile.DataFileReader(open(sys.argv[1], "rb"), avro.io.DatumReader()))
first = min(row["event_time"] for row in rows)
print(len(rows), sum(row["bytes"] for row in rows), round(first.timestamp() * 1000))
"""
_POLARS: Final = """
import sys, polars
rows = polars.read_{}(sys.argv[1])
first = rows["event_time"].dt.epoch("ms").min()
print(len(rows), rows["bytes"].sum(), first)
"""
_DUCKDB: Final = """
import duckdb, duckdb_extension_avro, pathlib, sys
(file,) = pathlib.Path(duckdb_extension_avro.__file__).parent.rglob("*.duckdb_extension")
duckdb.execute(f"INSTALL '{{file}}'")
duckdb.execute("LOAD avro")
query = "SELECT count(*), sum(bytes), epoch_ms(min(event_time)) FROM read_{}(?)"
print(*duckdb.execute(query, sys.argv[1:]).fetchone())
"""
_PYARROW: Final = """
import sys, pyarrow.compute as pc, pyarrow.parquet
rows = pyarrow.parquet.read_table(sys.argv[1])
first = pc.min(rows["event_time"]).cast("int64").as_py() // 1000
print(len(rows), pc.sum(rows["bytes"]), first)
"""
_PANDAS: Final = """
import sys, pandas
rows = pandas.read_parquet(sys.argv[1])
print(len(rows), rows["bytes"].sum(), round(rows["event_time"].min().timestamp() * 1000))
"""
_SPARK: Final = """
import sys
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = session.config("spark.driver.host", "127.0.0.1").getOrCreate()
rows = spark.read.format("{}").load(sys.argv[1])
query = "count(*)", "sum(bytes)", "unix_millis(min(event_time))"
print(*rows.selectExpr(*query).first())
"""
_JAVA: Final = """
import java.io.File;
import org.apache.avro.file.DataFileReader;
import org.apache.avro.generic.*;

public class ReadHour {
    public static void main(String[] arguments) throws Exception {
        long count = 0, bytes = 0, first = Long.MAX_VALUE;
        var reader = new GenericDatumReader<GenericRecord>();
        try (var events = new DataFileReader<>(new File(arguments[0]), reader)) {
            for (GenericRecord event : events) {
                count += 1;
                bytes += (Long) event.get("bytes");
                first = Math.min(first, (Long) event.get("event_time"));
            }
        }
        System.out.println(count + " " + bytes + " " + first);
    }
}
"""


PYTHON_READERS: Final = (
    Reader("fastavro 1.13.1", _FASTAVRO, "", ("fastavro==1.13.1",)),
    Reader("fastavro 1.13.1 with zstandard", _FASTAVRO, "", ("fastavro[zstandard]==1.13.1",)),
    Reader("avro for Python 1.12.1", _AVRO, "", ("avro==1.12.1",)),
    Reader("polars 2.1.0", _POLARS.format("avro"), _POLARS.format("parquet"), ("polars==2.1.0",)),
    Reader(
        "DuckDB 1.5.5 with its extension `avro`",
        _DUCKDB.format("avro"),
        _DUCKDB.format("parquet"),
        ("duckdb==1.5.5", "duckdb-extension-avro==1.5.5"),
    ),
    Reader("pyarrow 26.0.1", "", _PYARROW, ("pyarrow==26.0.1",)),
    Reader("pandas 3.1.1 with pyarrow", "", _PANDAS, ("pandas==3.1.1", "pyarrow==26.0.1")),
)
_SPARK_NAME: Final = f"Spark {pyspark.__version__} with spark-avro"


def write_hour(folder: Path) -> None:
    """Write an hour with `EVENTS` events in each of `FORMS`.

    Args:
        folder: Folder for the files, which exists.
    """
    schema = event_schema("access", [{"name": "bytes", "type": "long"}])
    parsed = fastavro.parse_schema(schema)
    datums = []
    for number in range(EVENTS):
        event = {
            "event_id": number.to_bytes(16, "big"),
            "event_time": _HOUR_S * 1000 + number,
            "host": "web-1",
            "source": "access",
            "file": None,
            "position": number,
            "bytes": _BYTES,
        }
        datum = io.BytesIO()
        fastavro.schemaless_writer(datum, parsed, event)
        datums.append(datum.getvalue())
    data = b"".join(datums)
    offsets = np.cumsum([0, *map(len, datums)], dtype=np.int64)
    for form in FORMS:
        if form.codec is not None:
            with (folder / form.name).open("wb") as file:
                writer = ContainerWriter(file, json.dumps(schema), codec=form.codec)
                writer.append_run(memoryview(data), offsets)
                writer.close()
            continue
        storage = LocalDisk(folder)
        with ExitStack() as opened:
            files = ParquetFiles(storage, "written", DatumConverter(schema), opened)
            files.write(memoryview(data), offsets, np.full(EVENTS, _HOUR_S, dtype=np.int64))
            [written] = files.finish()
        assert not written.read_back_error, written.read_back_error
        storage.rename_new(written.path, form.name)


def measure(folder: Path) -> dict[str, tuple[bool | None, ...]]:
    """Read an hour in each form with each reader.

    Args:
        folder: Empty folder for the files and environments.

    Returns:
        Maps the name of each reader to one entry per element of `FORMS`: whether the reader
        returned the events that were written, or None if it has no function for this format.

    Raises:
        RuntimeError: An environment cannot be created.
    """
    (folder / "hour").mkdir()
    write_hour(folder / "hour")
    found = {}
    for number, reader in enumerate(PYTHON_READERS):
        python = _make_environment(folder / f"environment-{number}", reader.packages)
        found[reader.name] = read_forms(folder, reader, [str(python), "-c"])
    found[_SPARK_NAME] = read_forms(
        folder,
        Reader(_SPARK_NAME, _SPARK.format("avro"), _SPARK.format("parquet")),
        [sys.executable, "-c"],
        {"PYSPARK_SUBMIT_ARGS": f"--packages {SPARK_AVRO} pyspark-shell"},
    )
    jars = Path(pyspark.__path__[0]) / "jars"
    [avro_jar] = jars.glob("avro-[0-9]*.jar")
    version = avro_jar.stem.removeprefix("avro-")
    (folder / "ReadHour.java").write_text(_JAVA)
    name = f"Avro for Java {version}, with zstd-jni for `zstandard`"
    java = [str(find_java(os.environ)), "-cp", f"{jars}/*"]
    found[name] = read_forms(folder, Reader(name, str(folder / "ReadHour.java"), ""), java)
    return found


def _make_environment(folder: Path, packages: Sequence[str]) -> Path:
    # Return the interpreter.
    python = folder / "bin" / "python"
    for command in (
        ["venv", "--python", sys.executable, str(folder)],
        ["pip", "install", "--python", str(python), *packages],
    ):
        done = uv(command)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
    return python


def read_forms(
    folder: Path, reader: Reader, command: Sequence[str], more: Mapping[str, str] | None = None
) -> tuple[bool | None, ...]:
    """Read an hour in each form with one reader.

    Args:
        folder: Folder that contains the files of `write_hour` in its subfolder `hour`.
        reader: The reader.
        command: Command that runs the program of the reader, without the program.
        more: Additional environment variables.

    Returns:
        One entry per element of `FORMS`: whether the reader returned the events, or None if it has
        no program for this format. False means that it refused the codec.

    Raises:
        RuntimeError: The reader returned other events, or failed for another reason.
    """
    results: list[bool | None] = []
    for form in FORMS:
        program = reader.parquet if form.codec is None else reader.avro
        if not program:
            results.append(None)
            continue
        done = subprocess.run(
            [*command, program, str(folder / "hour" / form.name)],
            cwd=folder,
            env={**os.environ, "HOME": str(Path.home()), **(more or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        lines = done.stdout.splitlines()
        if done.returncode == 0 and lines[-1:] != [EXPECTED]:
            raise RuntimeError(f"{reader.name} read {form.name} as {lines}, not {EXPECTED}")
        if done.returncode != 0 and "codec" not in done.stderr.lower():
            raise RuntimeError(f"{reader.name} failed on {form.name}: {done.stderr}")
        results.append(done.returncode == 0)
    return tuple(results)


def render_table(found: Mapping[str, Sequence[bool | None]]) -> str:
    """Return the table in Markdown.

    Args:
        found: Result of `measure`.
    """
    words = {True: "yes", False: "no", None: "n/a"}
    lines = [
        "| reader | " + " | ".join(form.title for form in FORMS) + " |",
        "|---|" + "---|" * len(FORMS),
        *(
            f"| {name} | " + " | ".join(words[result] for result in results) + " |"
            for name, results in found.items()
        ),
    ]
    return "\n".join(lines) + "\n"


def replace_table(page: str, table: str) -> str:
    """Return the page with another table between the two comments that delimit it.

    Raises:
        ValueError: The page does not have both comments.
    """
    before, _, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not end:
        raise ValueError(f"the page does not have the lines {_BEGIN.strip()} and {_END.strip()}")
    return f"{before}{_BEGIN}\n{table}\n{_END}{after}"


def main() -> None:
    """Write the page."""
    with tempfile.TemporaryDirectory() as folder:
        table = render_table(measure(Path(folder)))
    PAGE.write_text(replace_table(PAGE.read_text(), table))


if __name__ == "__main__":
    main()
