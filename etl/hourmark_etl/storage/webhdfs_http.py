"""WebHDFS requests: what is asked and what counts as an answer; timeouts, bounded retries, Hadoop's
exceptions as our own errors.

An answer is believed only in the shape that the operation has. All else (a lost connection, a
redirect to a login page, HTML, JSON cut off, a 5xx of whatever cause) is `Lost`: whether the
operation happened is not known. Repeated is what may happen twice.

Connections are kept and belong to one thread of one process: a forked Spark worker never shares a
socket with its parent. Proxies of the environment are not used: a cluster's addresses are not the
internet's. Reference: Apache Hadoop, "WebHDFS REST API", 3.5.0. Why a client of its own:
docs/decisions/2026-11-21-hdfs-client.md.
"""

from __future__ import annotations

import dataclasses
import http.client
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeVar, cast
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from pydantic import BaseModel

from hourmark_etl.storage.errors import (
    AccessDenied,
    AlreadyExists,
    BadBlocks,
    NoSpace,
    NotFound,
    SafeMode,
    StorageError,
)

TIMEOUT_S: Final = (
    5.0,
    60.0,
)  # to connect; between bytes: a NameNode pauses for seconds in collections, not for a minute
# The first for a kept connection that the server has closed; the others ride out a failover's first
# seconds.
_RETRY_PAUSES_S: Final = (0.0, 0.2, 0.5, 1.0, 2.0)
_MESSAGE_CHARACTERS_MAX: Final = 500

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
    "BlockMissingException": BadBlocks,
    "ChecksumException": BadBlocks,
}
_LATER: Final = frozenset(
    {"StandbyException", "RetriableException", "ObserverRetryOnActiveException"}
)
_NO_ROOM: Final = ("could only be written to", "could only be replicated to", "No space left")
_BYTES: Final = "application/octet-stream"
_NO_DATANODE: Final = "Failed to find datanode"

T = TypeVar("T")
Shape = TypeVar("Shape", bound=BaseModel)
_local = threading.local()


class Lost(StorageError):
    """No answer that can be believed: whether the operation happened is not known."""

    next_step = (
        "check that the server named runs, is active, and can be reached from here "
        "(storage.webhdfs), then try again"
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where an operation goes, with the names that its errors carry."""

    http: str  # http://host:port of the NameNode
    file: str  # absolute path in HDFS
    user: str
    path: str  # below the root
    url: str  # hdfs://…

    def lost(self, server: str, what: object) -> Lost:
        """What to raise where this server's answer cannot be believed."""
        told = f"{type(what).__name__}: {what}" if isinstance(what, Exception) else what
        return Lost(
            self.path, self.url, f"no answer from {server} ({told})"[:_MESSAGE_CHARACTERS_MAX]
        )


class HttpAnswer(NamedTuple):
    """What a server said, with the status that was expected of it."""

    content: bytes
    kind: str
    location: str

    @property
    def is_nothing(self) -> bool:
        """Whether it is Hadoop's answer where all it has to say is that it is done. No login page
        is, nor a plain rename's.
        """
        return self.kind == _BYTES and not self.content


class _RemoteException(BaseModel):
    exception: str
    message: str | None = None


class _Refusal(BaseModel):
    RemoteException: _RemoteException


def ask(
    target: Target, method: str, operation: str, shape: type[Shape], **parameters: str | int
) -> Shape:
    """The NameNode's answer to an operation that may happen twice; StorageError otherwise."""

    def once() -> Shape:
        answer = say(target, method, operation, 200, **parameters)
        try:
            return shape.model_validate_json(answer.content)
        except ValueError as error:
            raise target.lost(
                target.http, f"to {operation} it said {answer.content[:100]!r}"
            ) from error

    return again(once)


def say(
    target: Target, method: str, operation: str, expected: int = 200, **parameters: str | int
) -> HttpAnswer:
    """The same, once, and the answer as it came, with this status."""
    query = urlencode({"op": operation, "user.name": target.user, **parameters})
    address = urlsplit(f"{target.http}/webhdfs/v1{quote(target.file, safe='/')}?{query}")
    return _exchange(target, address, method, expected)


def at_datanode(
    target: Target,
    method: str,
    operation: str,
    use: Callable[[SplitResult], T],
    **parameters: str | int,
) -> T:
    """What `use` does with the DataNode that the NameNode names; where that one is lost, with
    another. May happen twice.
    """
    excluded: dict[str, str] = {}

    def once() -> T:
        asked = parameters | excluded
        excluded.clear()  # where it is the only one, it may be back
        try:
            told = say(target, method, operation, 307, **asked)
        except StorageError as error:
            if asked == parameters:
                raise
            raise target.lost(target.http, f"and of the others: {error.what}") from error
        address = urlsplit(told.location)
        try:
            return use(address)
        except Lost:
            excluded["excludedatanodes"] = address.hostname or ""
            raise

    return again(once)


def again(action: Callable[[], T]) -> T:
    """What the action returns; it is repeated a few times while answers are lost."""
    for pause_s in _RETRY_PAUSES_S:
        try:
            return action()
        except Lost:
            time.sleep(pause_s)
    return action()


def get(target: Target, address: SplitResult, length: int) -> bytes:
    """So many bytes from a DataNode; a short answer is an error, never a short result."""
    answer = _exchange(target, address, "GET", 200)
    if answer.kind != _BYTES or len(answer.content) != length:
        raise target.lost(
            address.netloc,
            f"{len(answer.content)} of {length} bytes came, of {answer.kind or 'no type'}",
        )
    return answer.content


def connected(address: SplitResult) -> http.client.HTTPConnection:
    """A new connection.

    OSError, HTTPException or ValueError (a port that is none) where there is no server.
    """
    if not address.hostname:
        raise ValueError(f"{address.geturl()!r} names no server")
    kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
    connection = kind(address.hostname, address.port, timeout=TIMEOUT_S[0])
    connection.connect()
    connection.sock.settimeout(TIMEOUT_S[1])
    return connection


def answer_of(connection: http.client.HTTPConnection, target: Target, expected: int) -> HttpAnswer:
    """Read it to its end.

    StorageError where it is another one; OSError or HTTPException where there is none.
    """
    answer = connection.getresponse()
    content = answer.read()
    if answer.status == expected:
        return HttpAnswer(
            content, answer.headers.get("Content-Type", ""), answer.headers.get("Location", "")
        )
    try:
        told = _Refusal.model_validate_json(content).RemoteException
    except ValueError:
        told = _RemoteException(exception="")
    message = (told.message or answer.reason).partition("\n")[0]
    kind = _kind(answer.status, told.exception, message)
    text = (
        f"{connection.host}:{connection.port} answered {told.exception or answer.status}: {message}"
    )
    raise kind(target.path, target.url, text[:_MESSAGE_CHARACTERS_MAX])


def _kind(status: int, exception: str, message: str) -> type[StorageError]:
    """Our error for Hadoop's.

    A status alone, as a proxy gives it, says little; a 5xx nothing at all.
    """
    if "safe mode" in message:
        return SafeMode
    if any(words in message for words in _NO_ROOM):
        return NoSpace
    if exception in _EXCEPTIONS:
        return _EXCEPTIONS[exception]
    if not exception and status in (401, 403):
        return AccessDenied
    lost = not exception or status >= 500 or exception in _LATER or _NO_DATANODE in message
    return Lost if lost else StorageError


def _exchange(target: Target, address: SplitResult, method: str, expected: int) -> HttpAnswer:
    try:
        connection = _kept(address)
        try:
            connection.request(method, f"{address.path}?{address.query}")
            return answer_of(connection, target, expected)
        except (OSError, http.client.HTTPException):
            connection.close()  # what it would say next belongs to this request
            raise
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise target.lost(address.netloc, error) from error


class _Connections(dict[tuple[int, str, str], http.client.HTTPConnection]):
    """One thread's; closed when the thread ends."""

    def __del__(self) -> None:
        for connection in self.values():
            connection.close()


def _kept(address: SplitResult) -> http.client.HTTPConnection:
    """This thread's connection to the server in this process."""
    mine = _local.__dict__.setdefault("connections", _Connections())
    server = os.getpid(), address.scheme, address.netloc
    if server not in mine or mine[server].sock is None:
        mine[server] = connected(address)
    return cast(http.client.HTTPConnection, mine[server])
