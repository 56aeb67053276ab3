"""A NameNode and a DataNode in one, that can be told to misbehave: a small HTTP server over a
dictionary.

The contract of storage is proved on real HDFS; here is what no real server can be made to do.
"""

from __future__ import annotations

import json
import ssl
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from hourmark.clock import Clock, SystemClock

Trouble = Callable[["Handler", str], bool]  # True: it has answered, or hung up, itself


class FakeHdfs(ThreadingHTTPServer):
    """Files by absolute path; None is a folder."""

    daemon_threads = True

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.scheme = "http" if tls is None else "https"
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.names: dict[str, bytes | None] = {"/root": None}
        self.ids: dict[str, int] = {}  # of files and folders: it goes along with a rename
        self.lives = True  # the DataNode
        self.stored_max: int | None = None  # bytes of an upload that it keeps
        self.corrupt: set[str] = set()  # files whose replicas are
        self.is_gateway = False  # as HttpFS: redirects to itself, and only for writing
        self.has_file_ids = True  # HttpFS before Hadoop 3.3 has none
        self.is_standby = False  # refuses what a NameNode is asked; a DataNode has no such state
        self.tokens: set[str] | None = None  # valid delegation tokens; None without Kerberos
        self.logins: list[str] = []  # Authorization headers
        self.lifetime_ms = 24 * 3_600_000  # of a token
        self.clock: Clock = SystemClock()
        self.late: list[Callable[[], None]] = []  # what arrived, and is done at the next request
        self.over = threading.Event()  # whoever hangs, ends
        self.asked: list[str] = []
        self.troubles: list[
            tuple[str, Trouble]
        ] = []  # taken one by one, each at the first request of its operation

    def id_of(self, name: str) -> int:
        return self.ids.setdefault(name, 16386 + len(self.ids))

    def catch_up(self) -> None:
        """Do what arrived late; a standby is fenced."""
        if self.is_standby:
            self.late.clear()
        while self.late:
            self.late.pop()()

    def handle_error(self, *_: object) -> None:
        """A client that hung up is no news."""

    @property
    def address(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_address[1]}"


@contextmanager
def serving_hdfs(tls: ssl.SSLContext | None = None) -> Iterator[FakeHdfs]:
    """A server that runs until the block ends."""
    server = FakeHdfs(tls)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


class Handler(BaseHTTPRequestHandler):
    server: FakeHdfs
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.work()

    do_PUT = do_DELETE = do_GET

    def work(self) -> None:
        address = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(address.query).items()}
        self.file = unquote(address.path.removeprefix("/webhdfs/v1").removeprefix("/data"))
        operation = self.query["op"] + (" data" if address.path.startswith("/data") else "")
        self.server.asked.append(operation)
        self.server.catch_up()
        if self.server.is_standby and not operation.endswith(" data"):
            self.refuse(403, "StandbyException", "not supported in state standby")
            return
        if not self.is_authentic(operation):
            return
        for trouble in self.server.troubles:
            if trouble[0] == operation:
                self.server.troubles.remove(trouble)
                if trouble[1](self, operation):
                    return
                break
        getattr(self, operation.replace(" ", "_").lower())()

    def is_authentic(self, operation: str) -> bool:
        """Whether the request has what Hadoop's filters require; it is refused if not."""
        if self.server.tokens is None:
            return True
        if operation.endswith("DELEGATIONTOKEN"):
            header = self.headers.get("Authorization", "")
            self.server.logins.append(header)
            assert "delegation" not in self.query
            if not header.startswith("Negotiate "):
                self.answer(401, content=b"<html>", kind="text/html")
                return False
            return True
        if "delegation" not in self.query:
            self.answer(401, content=b"<html>", kind="text/html")
            return False
        assert "user.name" not in self.query
        if self.query["delegation"] not in self.server.tokens:
            failure = "Failed to obtain user group information: org.apache.hadoop.security.token."
            message = f"{failure}SecretManager$InvalidToken: token (…) can't be found in cache"
            self.refuse(403, "SecurityException", message)
            return False
        return True

    def getdelegationtoken(self) -> None:
        token = None
        if self.server.tokens is not None:
            token = {"urlString": f"secret-delegation-token-{uuid.uuid4().hex}"}
            self.server.tokens.add(token["urlString"])
        self.answer(200, {"Token": token})

    def renewdelegationtoken(self) -> None:
        assert self.server.tokens is not None and self.query["token"] in self.server.tokens
        self.answer(200, {"long": self.server.clock.now_ms() + self.server.lifetime_ms})

    def answer(
        self,
        status: int,
        value: object = None,
        *,
        location: str | None = None,
        content: bytes | None = None,
        kind: str = "application/json",
    ) -> None:
        body = (
            content if content is not None else b"" if value is None else json.dumps(value).encode()
        )
        self.send_response(status)
        if location is not None:
            self.send_header("Location", location)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status: int, exception: str, message: str) -> None:
        self.answer(
            status,
            {
                "RemoteException": {
                    "exception": exception,
                    "javaClassName": exception,
                    "message": message,
                }
            },
        )

    def hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(2)

    def getfilestatus(self) -> None:
        if self.file not in self.server.names:
            return self.refuse(404, "FileNotFoundException", f"File does not exist: {self.file}")
        return self.answer(200, {"FileStatus": self.status(self.file, "")})

    def status(self, file: str, suffix: str) -> dict[str, object]:
        content, number = self.server.names[file], self.server.id_of(file)
        kind = "DIRECTORY" if content is None else "FILE"
        found: dict[str, object] = {
            "pathSuffix": suffix,
            "type": kind,
            "length": len(content or b""),
            "modificationTime": 1,
        }
        return {**found, "fileId": number} if self.server.has_file_ids else found

    def liststatus(self) -> None:
        below = f"{self.file}/"
        names = [
            n for n in self.server.names if n.startswith(below) and "/" not in n.removeprefix(below)
        ]
        self.answer(
            200,
            {
                "FileStatuses": {
                    "FileStatus": [self.status(n, n.removeprefix(below)) for n in names]
                }
            },
        )

    def mkdirs(self) -> None:
        self.make_folders(self.file)
        self.answer(200, {"boolean": True})

    def make_folders(self, file: str) -> None:
        """With its parents."""
        names = file.split("/")
        for depth in range(2, len(names) + 1):
            self.server.names.setdefault("/".join(names[:depth]), None)

    def delete(self) -> None:
        self.answer(200, {"boolean": self.server.names.pop(self.file, None) is not None})

    def rename(self) -> None:
        assert self.query["renameoptions"] == "NONE"
        target = self.query["destination"]
        if self.file not in self.server.names:
            return self.refuse(
                404, "FileNotFoundException", f"rename source {self.file} is not found."
            )
        if target in self.server.names:
            return self.refuse(
                403, "FileAlreadyExistsException", f"rename destination {target} already exists"
            )
        if (folder := target.rpartition("/")[0]) not in self.server.names:
            return self.refuse(
                404, "FileNotFoundException", f"rename destination parent {folder} not found."
            )
        self.server.ids[target] = self.server.id_of(self.file)
        self.server.ids.pop(self.file)
        for name in [n for n in self.server.names if f"{n}/".startswith(f"{self.file}/")]:
            self.server.names[target + name[len(self.file) :]] = self.server.names.pop(name)
        return self.answer(200, kind="application/octet-stream")

    def create(self) -> None:
        if not self.server.lives:
            return self.refuse(
                403,
                "IOException",
                "Failed to find datanode, suggest to check cluster health. excludeDatanodes=null",
            )
        return self.redirect()

    def redirect(self) -> None:
        place = f"{self.server.address}/data{self.path.removeprefix('/webhdfs/v1')}"
        self.answer(307, location=f"{place}&data=true" if self.server.is_gateway else place)

    def create_data(self) -> None:
        assert self.query["overwrite"] == "false"
        content = b""
        while size := int(self.rfile.readline(), 16):
            content += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        self.make_folders(self.file.rpartition("/")[0])
        self.server.names[self.file] = content[: self.server.stored_max]
        self.answer(201)

    def open(self) -> None:
        if not self.server.lives:
            return self.refuse(
                403, "IOException", "No active and not excluded nodes contain this block"
            )
        return self.open_data() if self.server.is_gateway else self.redirect()

    def getfileblocklocations(self) -> None:
        hosts = ["datanode"] if self.server.lives and self.file in self.server.names else []
        block = {"corrupt": self.file in self.server.corrupt, "hosts": hosts, "offset": 0}
        self.answer(200, {"BlockLocations": {"BlockLocation": [block]}})

    def open_data(self) -> None:
        content = self.server.names.get(self.file)
        assert content is not None
        start = int(self.query["offset"])
        self.answer(
            200,
            content=content[start : start + int(self.query["length"])],
            kind="application/octet-stream",
        )


def lost(handler: Handler, _: str) -> bool:
    """The request never arrives."""
    handler.hang_up()
    return True


def do(handler: Handler, operation: str) -> None:
    """Carry it out, and say nothing."""
    answer = handler.answer
    handler.answer = lambda *_, **__: None  # type: ignore[method-assign]
    getattr(handler, operation.replace(" ", "_").lower())()
    handler.answer = answer  # type: ignore[method-assign]


def done_but_lost(handler: Handler, operation: str) -> bool:
    """It is done, the answer never arrives."""
    do(handler, operation)
    handler.hang_up()
    return True


def refusing(status: int, exception: str, message: str = "planted") -> Trouble:
    def trouble(handler: Handler, _: str) -> bool:
        handler.refuse(status, exception, message)
        return True

    return trouble
