"""A small real HTTP server that speaks the two operations of WebHDFS that the judge uses, over a
local folder.

As a NameNode does, it answers OPEN with a redirect to where the bytes are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.http_server import Answering, serving

_PREFIX = "/webhdfs/v1"


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """The server's address; HDFS' `/` is `folder`."""

    class Handler(Answering):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            query = parse_qs(url.query)
            data = url.path.startswith("/data")
            path = folder / unquote(url.path.removeprefix("/data").removeprefix(_PREFIX)).strip("/")
            if not path.exists():
                self.answer(
                    404,
                    json.dumps(
                        {"RemoteException": {"exception": "FileNotFoundException"}}
                    ).encode(),
                )
            elif data:
                self.answer(200, path.read_bytes())
            elif query["op"] == ["OPEN"]:
                self.send_response(307)
                self.send_header("Location", f"http://{self.headers['Host']}/data{self.path}")
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                assert query["op"] == ["LISTSTATUS"]
                self.answer(
                    200, json.dumps({"FileStatuses": {"FileStatus": _statuses(path)}}).encode()
                )

    with serving(Handler) as address:
        yield f"http://{address}"


def _statuses(path: Path) -> list[dict[str, object]]:
    return [
        {
            "pathSuffix": "" if entry == path else entry.name,
            "type": "DIRECTORY" if entry.is_dir() else "FILE",
            "length": 0 if entry.is_dir() else entry.stat().st_size,
            "fileId": entry.stat().st_ino,
            "modificationTime": entry.stat().st_mtime_ns,  # finer than HDFS has it: tests are quick
        }
        for entry in ([path] if path.is_file() else sorted(path.iterdir()))
    ]
