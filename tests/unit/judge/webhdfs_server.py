"""A small real HTTP server that speaks the two operations of WebHDFS that the judge uses, over a local folder.

As a NameNode does, it answers OPEN with a redirect to where the bytes are.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

_PREFIX = "/webhdfs/v1"


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """The server's address; HDFS' `/` is `folder`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            query = parse_qs(url.query)
            data = url.path.startswith("/data")
            path = folder / unquote(url.path.removeprefix("/data").removeprefix(_PREFIX)).strip("/")
            if not path.exists():
                self._answer(404, json.dumps({"RemoteException": {"exception": "FileNotFoundException"}}).encode())
            elif data:
                self._answer(200, path.read_bytes())
            elif query["op"] == ["OPEN"]:
                self.send_response(307)
                self.send_header("Location", f"http://127.0.0.1:{server.server_port}/data{self.path}")
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                assert query["op"] == ["LISTSTATUS"]
                self._answer(200, json.dumps({"FileStatuses": {"FileStatus": _statuses(path)}}).encode())

        def _answer(self, code: int, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


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
