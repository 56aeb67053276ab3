"""WebHDFS requests: one function that asks, with timeouts, bounded retries and Hadoop's exceptions as our own errors.

A client of its own over `http.client`, and not fsspec's `WebHDFS`, after reading the latter (2026.9): it sends RENAME without
`renameoptions` and ignores the answer, creates with `overwrite=true` and then appends, finishes a file although the block that
writes it raised, has no timeouts and no retries, drops the names of Hadoop's exceptions, and caches instances across forks.
Every one of these would have to be overridden, which leaves nothing of it.

Retried are only operations that may happen twice, on lost connections and on a NameNode that says "later" (standby, 5xx).
Connections are kept and belong to one thread of one process: a forked Spark worker never shares a socket with its parent. Proxies
of the environment are not used: a cluster's addresses are not the internet's. (`requests` cost 0.8 ms of CPU a request where this
costs 0.2; a thousand small types are thirty thousand requests.)
Reference: Apache Hadoop, "WebHDFS REST API", 3.5.0.
"""

from __future__ import annotations

import dataclasses
import http.client
import json
import os
import select
import threading
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from etl.storage.errors import AccessDenied, AlreadyExists, NoSpace, NotFound, SafeMode, StorageError

TIMEOUT_S: Final = (5.0, 60.0)  # to connect; between bytes: a NameNode pauses for seconds in collections, not for a minute
_RETRY_PAUSES_S: Final = (0.2, 0.5, 1.0, 2.0)  # rides out a failover's first seconds; what takes longer is the caller's
_MESSAGE_CHARACTERS_MAX: Final = 500
_CONNECTIONS_MAX: Final = 16  # of a thread, to the NameNode and to DataNodes

_EXCEPTIONS: Final[Mapping[str, type[StorageError]]] = {
    "FileNotFoundException": NotFound,
    "PathIsNotDirectoryException": NotFound,
    "ParentNotDirectoryException": NotFound,
    "FileAlreadyExistsException": AlreadyExists,
    "AccessControlException": AccessDenied,
    "SecurityException": AccessDenied,
    "DSQuotaExceededException": NoSpace,
    "NSQuotaExceededException": NoSpace,
    "QuotaByStorageTypeExceededException": NoSpace,
    "SafeModeException": SafeMode,
}
_LATER: Final = frozenset({"StandbyException", "RetriableException", "ObserverRetryOnActiveException"})
_NO_ROOM: Final = ("could only be written to", "could only be replicated to", "Failed to find datanode", "No space left")

_local = threading.local()


class Lost(StorageError):
    """No answer came: whether the operation happened is not known."""

    next_step = "check that the server named runs and can be reached from here (storage.webhdfs), then try again"


class Later(StorageError):
    """The server says that it cannot for now (standby, starting, overloaded)."""

    next_step = "wait for the NameNode to become active, or point storage.webhdfs at the one that is"


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """Where an operation goes, with the names that its errors carry."""

    http: str  # http://host:port of the NameNode
    file: str  # absolute path in HDFS
    user: str
    path: str  # below the root
    url: str  # hdfs://…


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What a server said."""

    status_code: int
    reason: str
    location: str  # where it sends the client on; "" if nowhere
    content: bytes

    @property
    def text(self) -> str:
        """The content, for messages."""
        return self.content.decode(errors="replace")

    def json(self) -> Any:
        """The content; ValueError if it is no JSON."""
        return json.loads(self.content)


def ask(target: Target, method: str, operation: str, *, repeatable: bool, **parameters: str | int) -> Answer:
    """The answer (2xx or 307) of one operation; StorageError otherwise. `repeatable`: happening twice is harmless."""
    address = f"{target.http}/webhdfs/v1{quote(target.file, safe='/')}"
    query = {"op": operation, "user.name": target.user, **{name: str(value) for name, value in parameters.items()}}
    pauses = iter(_RETRY_PAUSES_S if repeatable else ())
    while True:
        try:
            return _once(target, method, address, query)
        except (Lost, Later):
            pause = next(pauses, None)
            if pause is None:
                raise
            time.sleep(pause)


def fetch(target: Target, offset: int, length: int) -> bytes:
    """Exactly these bytes of the file; a short answer is an error, never a short result."""
    pauses = iter(_RETRY_PAUSES_S)
    while True:
        try:
            answer = ask(target, "GET", "OPEN", repeatable=True, offset=offset, length=length)
            if answer.location:
                answer = _once(target, "GET", answer.location, None)
            if len(answer.content) != length:
                raise Lost(target.path, target.url, f"{len(answer.content)} of {length} bytes came from offset {offset}")
            return answer.content
        except (Lost, Later):
            pause = next(pauses, None)
            if pause is None:
                raise
            time.sleep(pause)


def failure(target: Target, status: int, reason: str, content: bytes) -> StorageError:
    """Our error for an answer that is no success."""
    exception, message = _remote_exception(content)
    text = f"{exception or status}: {message or reason}"[:_MESSAGE_CHARACTERS_MAX]
    kind = _EXCEPTIONS.get(exception, StorageError)
    if "safe mode" in message:
        kind = SafeMode
    elif any(words in message for words in _NO_ROOM):
        kind = NoSpace
    elif exception in _LATER or (status in (429, 502, 503, 504) and kind is StorageError):
        kind = Later
    elif status == 404 and kind is StorageError:
        kind = NotFound
    return kind(target.path, target.url, text)


def _once(target: Target, method: str, address: str, query: Mapping[str, str] | None) -> Answer:
    try:
        answer = _request(method, f"{address}?{urlencode(query)}" if query else address)
    except (OSError, http.client.HTTPException) as error:
        server = address.partition("/webhdfs/")[0]
        raise Lost(target.path, target.url, f"no answer from {server} ({type(error).__name__}: {error})") from error
    if answer.status_code >= 400:
        raise failure(target, answer.status_code, answer.reason, answer.content)
    return answer


def _request(method: str, address: str) -> Answer:
    parts = urlsplit(address)
    connection = _connection(parts.scheme, parts.netloc)
    try:
        if connection.sock is None:
            connection.timeout = TIMEOUT_S[0]
            connection.connect()
            assert connection.sock is not None
            connection.sock.settimeout(TIMEOUT_S[1])
        connection.request(method, f"{parts.path}?{parts.query}")
        answer = connection.getresponse()
        return Answer(answer.status, answer.reason, answer.headers.get("Location", ""), answer.read())
    except BaseException:
        connection.close()  # what it would say next belongs to this request
        raise


def _remote_exception(content: bytes) -> tuple[str, str]:
    try:
        told: Any = json.loads(content)["RemoteException"]
        return str(told["exception"]), str(told["message"]).partition("\n")[0]
    except (ValueError, KeyError, TypeError):
        return "", ""


class _Connections:
    """One thread's, in one process; closed when the thread ends."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.kept: dict[tuple[str, str], http.client.HTTPConnection] = {}

    def __del__(self) -> None:
        for connection in self.kept.values():
            connection.close()


def _connection(scheme: str, server: str) -> http.client.HTTPConnection:
    """This thread's connection to the server in this process; a new one where the server has closed it meanwhile."""
    mine: _Connections | None = getattr(_local, "connections", None)
    if mine is None or mine.pid != os.getpid():
        mine = _local.connections = _Connections()
    kept = mine.kept
    connection = kept.get((scheme, server))
    if connection is None:
        if len(kept) >= _CONNECTIONS_MAX:
            kept.pop(next(iter(kept))).close()
        kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
        connection = kept[scheme, server] = kind(server, timeout=TIMEOUT_S[0])
    if connection.sock is not None and _is_readable(connection.sock.fileno()):
        connection.close()  # nothing was asked: what is there to read is its end
    return connection


def _is_readable(file: int) -> bool:
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(0))
