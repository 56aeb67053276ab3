"""Programs of other people read the files of a bucket: fastavro without further packages, polars
and DuckDB, the latter two by the programs of docs/start/query-an-hour.md.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import fastavro
import pytest
from tests.support.containers import append_all
from tests.support.documents import ROOT, code_blocks, console_commands
from tools.uv import uv

from hourmark.avro.framing import event_schema
from hourmark.config.groups import AvroCodec
from hourmark_etl.buckets.avro_container import ContainerWriter

PAGE = (ROOT / "docs" / "start" / "query-an-hour.md").read_text()
SCHEMA = event_schema(
    "access", [{"name": "status", "type": "long"}, {"name": "bytes", "type": "long"}]
)
LINES = 20
PACKAGES = ("polars==2.1.0", "duckdb==1.5.5", "duckdb-extension-avro==1.5.5")
# The packages that fastavro uses if they are installed are not.
FASTAVRO_ALONE = """
import pathlib, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in ("backports.zstd", "zstandard", "cramjam", "lz4", "snappy"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
import fastavro
files = [path.open("rb") for path in pathlib.Path("hour").glob("*.avro")]
print(sum(event["bytes"] for file in files for event in fastavro.reader(file)))
"""
# DuckDB finds the extension that it would download.
INSTALL_EXTENSION = """
import duckdb, duckdb_extension_avro, pathlib
(file,) = pathlib.Path(duckdb_extension_avro.__file__).parent.rglob("*.duckdb_extension")
duckdb.execute(f"INSTALL '{file}'")
"""


def write_bucket(folder: Path, codec: AvroCodec) -> None:
    """The bucket of the page, in two files below `hour`."""
    (folder / "hour").mkdir()
    schema = fastavro.parse_schema(SCHEMA)
    for number in range(2):
        datums = []
        for n in range(LINES // 2):
            event = {
                "event_id": bytes([number]) * 15 + bytes([n]),
                "event_time": 1_764_479_220_000 + n,
                "host": "web-1",
                "source": "access",
                "file": None,
                "position": n,
                "status": 200,
                "bytes": 60_900 // LINES,
            }
            encoded = io.BytesIO()
            fastavro.schemaless_writer(encoded, schema, event)
            datums.append(encoded.getvalue())
        with (folder / "hour" / f"part-0000{number}.avro").open("wb") as file:
            writer = ContainerWriter(file, json.dumps(SCHEMA), codec=codec)
            append_all(writer, datums)
            writer.close()


def run(python: Path | str, program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"}
    return subprocess.run(
        [str(python), "-c", program],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_fastavro_without_further_packages_reads_deflate_alone(tmp_path: Path) -> None:
    for codec in ("deflate", "zstandard"):
        (tmp_path / codec).mkdir()
    write_bucket(tmp_path / "deflate", "deflate")
    write_bucket(tmp_path / "zstandard", "zstandard")
    read = run(sys.executable, FASTAVRO_ALONE, tmp_path / "deflate")
    assert (read.stdout, read.stderr) == ("60900\n", "")
    refused = run(sys.executable, FASTAVRO_ALONE, tmp_path / "zstandard")
    assert "zstandard codec is supported but you need to install" in refused.stderr


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with polars and DuckDB."""
    folder = tmp_path_factory.mktemp("readers") / "env"
    python = folder / "bin" / "python"
    for command in (
        ["venv", "--python", sys.executable, str(folder)],
        ["pip", "install", "--python", str(python), *PACKAGES],
    ):
        done = uv(command)
        assert done.returncode == 0, done.stderr
    return python


@pytest.mark.long
@pytest.mark.parametrize("name", ["query_polars.py", "query_duckdb.py"])
def test_the_programs_of_the_page_read_deflate_and_print_what_it_shows(
    readers: Path, tmp_path: Path, name: str
) -> None:
    (program,) = (b for b in code_blocks(PAGE, "python") if b.startswith(f"# {name}\n"))
    (shown,) = (out for command, out in console_commands(PAGE) if command == f"python {name}")
    write_bucket(tmp_path, "deflate")
    installed = run(readers, INSTALL_EXTENSION, tmp_path)
    assert installed.returncode == 0, installed.stderr
    printed = run(readers, program, tmp_path)
    assert printed.stdout.split() == shown.split(), printed.stderr


@pytest.mark.long
@pytest.mark.parametrize("name", ["query_polars.py", "query_duckdb.py"])
def test_they_refuse_zstandard_as_the_page_says(readers: Path, tmp_path: Path, name: str) -> None:
    (program,) = (b for b in code_blocks(PAGE, "python") if b.startswith(f"# {name}\n"))
    write_bucket(tmp_path, "zstandard")
    assert run(readers, INSTALL_EXTENSION, tmp_path).returncode == 0
    refused = run(readers, program, tmp_path)
    assert refused.returncode != 0 and "codec" in refused.stderr
