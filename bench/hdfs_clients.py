"""Comparison of the WebHDFS client with `hdfs-native` on one HDFS, in alternating rounds.

    python -m bench.hdfs_clients --config $HOURMARK_HOME/stack/hourmark.toml --json

Install it first with `pip install hdfs-native`; it is not a dependency. Both perform the steps of a
bucket's file: check that the target does not exist, write under another name, check the size,
rename without overwriting, list, read back. Results are in
docs/internals/decisions/2026-11-21-hdfs-client.md.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hourmark.config.loading import load_config
from hourmark_etl.storage import open_storage

SMALL_BYTES = 8 << 10
LARGE_BYTES = 256 << 20
PIECE_BYTES = 1 << 20

Publish = Callable[[str, bytes, int], int]  # path, a piece and how many of it → bytes read back


def native_client(url: str) -> Publish:
    """Return a function that writes, publishes and reads back with hdfs-native.

    Args:
        url: Folder, as `hdfs://host:port/folder`.
    """
    native: Any = importlib.import_module("hdfs_native")
    server, _, folder = url.removeprefix("hdfs://").partition("/")
    client = native.Client(f"hdfs://{server}")
    options = native.WriteOptions(replication=1)

    def there(path: str) -> bool:
        try:
            client.get_file_info(path)
        except FileNotFoundError:
            return False
        return True

    def publish(name: str, piece: bytes, pieces: int) -> int:
        path, unfinished = f"/{folder}/{name}", f"/{folder}/.unfinished/{uuid.uuid4().hex}"
        assert not there(path)
        with client.create(unfinished, options) as file:
            for _ in range(pieces):
                file.write(piece)
        assert client.get_file_info(unfinished).length == len(piece) * pieces
        client.mkdirs(path.rpartition("/")[0], create_parent=True)
        client.rename(unfinished, path)
        assert there(path) and not there(unfinished)
        read = 0
        with client.read(path) as file:
            while data := file.read(4 << 20):
                read += len(data)
        return read

    return publish


def main() -> None:
    """Print one line for each measurement and client, and the ratio at the end."""
    parser = argparse.ArgumentParser(prog="python -m bench.hdfs_clients", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="settings whose storage is HDFS")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--files", type=int, default=40, help="small files of a round")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    settings = load_config(arguments.config).storage
    settings = settings.model_copy(
        update={"root": f"{settings.root}-clients-{uuid.uuid4().hex[:6]}"}
    )
    storage = open_storage(settings)

    def webhdfs(name: str, piece: bytes, pieces: int) -> int:
        with storage.create(name) as file:
            for _ in range(pieces):
                file.write(piece)
        read = 0
        with storage.open(name) as reader:
            while data := reader.read(4 << 20):
                read += len(data)
        return read

    clients: dict[str, Publish] = {"webhdfs": webhdfs, "hdfs-native": native_client(settings.root)}
    small, piece = os.urandom(SMALL_BYTES), os.urandom(PIECE_BYTES)
    measures: dict[str, tuple[bytes, int, int, int]] = {  # piece, pieces, files, at once
        "small": (small, 1, arguments.files, 1),
        "small, 8 at once": (small, 1, 2 * arguments.files, 8),
        "large": (piece, LARGE_BYTES // PIECE_BYTES, 1, 1),
    }
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    try:
        for number in range(arguments.rounds + 1):
            for what, measure in measures.items():
                for name, publish in clients.items():
                    taken = _round(publish, f"{name}/{number}/{what}".replace(",", ""), *measure)
                    if number:  # the first is warm-up
                        found.setdefault((what, name), []).append(taken)
    finally:
        storage.delete("webhdfs")
        storage.delete("hdfs-native")
    for what, (content, pieces, _, _) in measures.items():
        medians = {
            name: [statistics.median(column) for column in zip(*found[what, name], strict=True)]
            for name in clients
        }
        line: dict[str, Any] = {"measured": what, "bytes": len(content) * pieces}
        for name, (wall, cpu) in medians.items():
            line[name] = {"ms": round(wall * 1000, 1), "cpu_ms": round(cpu * 1000, 1)}
        ours, theirs = medians["webhdfs"], medians["hdfs-native"]
        line["ratio"] = {
            "wall": round(ours[0] / theirs[0], 2),
            "cpu": round(ours[1] / theirs[1], 2),
        }
        print(
            json.dumps(line) if arguments.json else "  ".join(f"{k} {v}" for k, v in line.items()),
            flush=True,
        )


def _round(
    publish: Publish, folder: str, piece: bytes, pieces: int, files: int, at_once: int
) -> tuple[float, float]:
    """Return elapsed and CPU seconds per file; a round's elapsed time is divided by its files."""
    began, cpu = time.monotonic(), time.process_time()
    with ThreadPoolExecutor(at_once) as pool:
        read = list(pool.map(lambda n: publish(f"{folder}/{n}/file", piece, pieces), range(files)))
    assert read == [len(piece) * pieces] * files
    return (time.monotonic() - began) / files, (time.process_time() - cpu) / files


if __name__ == "__main__":
    main()
