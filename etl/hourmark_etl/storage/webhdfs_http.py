"""WebHDFS requests: response validation, timeouts, bounded retries and Hadoop's errors.

A response is accepted only if it has the format that the operation defines. Everything else (a lost
connection, a redirect to a login page, HTML, truncated JSON, any 5xx) raises `OutcomeUnknown`: the
operation may or may not have happened. Only operations that are safe to repeat are retried.

A name service has several NameNodes, of which one is active. A request goes to the NameNode that
was active last. If this NameNode cannot be reached or reports that it is not active, it has not
executed the operation, so the same attempt continues with the next NameNode. If the outcome is
unknown, the attempt ends, and the next attempt begins with another NameNode.

With Kerberos, requests contain a delegation token instead of a user name (`TokenSource`). Redirects
to DataNodes contain the same token.

Connections are kept alive per thread and process, so a forked Spark worker never shares a socket
with its parent. Proxies from the environment are ignored. Reference: Apache Hadoop, "WebHDFS REST
API", 3.5.0. Why there is a separate client: docs/internals/decisions/2026-11-21-hdfs-client.md.
"""

from __future__ import annotations

import dataclasses
import http.client
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, TypeVar, cast
from urllib.parse import SplitResult, parse_qs, quote, urlencode, urlsplit

from pydantic import BaseModel

from hourmark_etl.storage.active_namenode import begin_after, begin_with, order_namenodes
from hourmark_etl.storage.errors import (
    AccessDenied,
    AlreadyExists,
    BadBlocks,
    NoSpace,
    NotAuthenticated,
    NotFound,
    QuotaExceeded,
    SafeMode,
    StorageError,
)
from hourmark_etl.storage.tls import client_context

TIMEOUT_S: Final = (
    5.0,
    60.0,
)  # to connect; between bytes: a NameNode pauses for seconds in collections, not for a minute
# The first for a kept connection that the server has closed; the others bridge the first seconds of
# a failover.
RETRY_PAUSES_S: Final = (0.0, 0.2, 0.5, 1.0, 2.0)
_MESSAGE_CHARACTERS_MAX: Final = 500

_EXCEPTIONS: Final[Mapping[str, type[StorageError]]] = {
    "FileNotFoundException": NotFound,
    "PathIsNotDirectoryException": NotFound,
    "ParentNotDirectoryException": NotFound,
    "FileAlreadyExistsException": AlreadyExists,
    "AccessControlException": AccessDenied,
    "SecurityException": AccessDenied,
    "DSQuotaExceededException": QuotaExceeded,
    "NSQuotaExceededException": QuotaExceeded,
    "QuotaByStorageTypeExceededException": QuotaExceeded,
    "SafeModeException": SafeMode,
    "BlockMissingException": BadBlocks,
    "ChecksumException": BadBlocks,
}
# A NameNode raises these before it executes an operation.
_NOT_ACTIVE: Final = frozenset(
    {"StandbyException", "RetriableException", "ObserverRetryOnActiveException"}
)
_NO_ROOM: Final = ("could only be written to", "could only be replicated to", "No space left")
_BYTES: Final = "application/octet-stream"
_NO_DATANODE: Final = "Failed to find datanode"

T = TypeVar("T")
Shape = TypeVar("Shape", bound=BaseModel)
_local = threading.local()


class OutcomeUnknown(StorageError):
    """Raised if the response to a WebHDFS request is missing or invalid.

    The operation may or may not have been executed. Retry it only if it is idempotent.
    """

    next_step = (
        "check that the named server is running and active, and can be reached from here "
        "(storage.webhdfs), then try again"
    )


class NotActive(OutcomeUnknown):
    """Raised if a server cannot be reached, or reports that it is not the active NameNode.

    This server did not execute the operation. An earlier attempt may have executed it.
    """


class TokenRejected(NotActive):
    """Raised if a server rejects the delegation token.

    The token has expired, or this NameNode is a standby that does not know it yet.
    """

    next_step = "a new delegation token is obtained automatically; check the log for failed logins"


class ReadOnlyGateway(StorageError):
    """Raised if a server that must be a NameNode is a gateway such as HttpFS.

    A gateway ignores `renameoptions`, so it would move a bucket into an existing one.
    """

    next_step = (
        "storage.webhdfs must contain the address of a NameNode; a gateway such as HttpFS can only "
        "be used to read"
    )


class TokenSource(Protocol):
    """Source of the delegation token that authenticates a process at a Kerberos cluster."""

    def token(self) -> str:
        """Return the token for a request.

        Raises:
            StorageError: No valid token is available. The operation was not executed.
        """

    def refresh_soon(self) -> None:
        """Obtain a new token before the next request if possible, because a server rejected it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WebHdfsTarget:
    """File or folder that a WebHDFS request refers to.

    Attributes:
        namenodes: `http://host:port` of each NameNode that can be active.
        ca: PEM file with the CA certificates for https:// addresses; None for those of the system.
        file: Absolute path in HDFS.
        user: HDFS user name; not used with Kerberos.
        path: Path relative to the storage root.
        url: `hdfs://…` URL of the path.
        kerberos: Source of delegation tokens; None if HDFS does not use Kerberos.
        authorize: Function that returns an Authorization header for a host name, for a request that
            contains neither a delegation token nor a user name.
        retry_pauses_s: Pause before each retry, in seconds.
    """

    namenodes: tuple[str, ...]
    ca: Path | None
    file: str
    user: str
    path: str
    url: str
    kerberos: TokenSource | None = None
    authorize: Callable[[str], str] | None = None
    retry_pauses_s: tuple[float, ...] = RETRY_PAUSES_S

    def unknown_outcome(self, server: str, what: object) -> OutcomeUnknown:
        """Create, but do not raise, an exception for a missing or invalid response.

        Args:
            server: Address of the server, for the message.
            what: Cause of the failure, an exception or a text. The message is truncated to 500
                characters.

        Returns:
            The exception with the path and URL of this target.
        """
        return OutcomeUnknown(self.path, self.url, _no_response(server, what))

    def unreachable(self, server: str, what: object) -> NotActive:
        """Create, but do not raise, an exception for a server to which no connection can be opened.

        Args:
            server: Address of the server, for the message.
            what: Cause of the failure, as in `unknown_outcome`.

        Returns:
            The exception with the path and URL of this target.
        """
        return NotActive(self.path, self.url, _no_response(server, what))

    def none_active(self, failures: list[NotActive]) -> NotActive:
        """Create, but do not raise, an exception for an attempt that found no active NameNode.

        Args:
            failures: The failure of each NameNode, at least one.

        Returns:
            An exception that names all failures; a TokenRejected if a server rejected the token.
        """
        what = "; ".join(failure.what for failure in failures)
        rejected = any(isinstance(failure, TokenRejected) for failure in failures)
        kind = TokenRejected if rejected else NotActive
        return kind(self.path, self.url, what[:_MESSAGE_CHARACTERS_MAX])

    @property
    def servers(self) -> str:
        """Return the addresses of the NameNodes, for messages."""
        return ", ".join(self.namenodes)


def _no_response(server: str, what: object) -> str:
    cause = f"{type(what).__name__}: {what}" if isinstance(what, Exception) else what
    if isinstance(what, ssl.SSLError):
        cause = f"{cause}; storage.ca must contain the CA of this server"
    return f"no response from {server} ({cause})"[:_MESSAGE_CHARACTERS_MAX]


class WebHdfsResponse(NamedTuple):
    """WebHDFS response with the expected HTTP status.

    Attributes:
        content: Response body.
        kind: Content type; empty if the header is missing.
        location: Location header; empty if it is missing.
    """

    content: bytes
    kind: str
    location: str

    @property
    def is_empty_success(self) -> bool:
        """Return whether the response is Hadoop's empty confirmation of a completed operation.

        The body must be empty and the content type must be binary. This excludes other responses
        with the expected HTTP status, such as the login page of a proxy.
        """
        return self.kind == _BYTES and not self.content


class _RemoteException(BaseModel):
    exception: str
    message: str | None = None


class _Refusal(BaseModel):
    RemoteException: _RemoteException


def request_json(
    target: WebHdfsTarget, method: str, operation: str, model: type[Shape], **parameters: str | int
) -> Shape:
    """Send a request to the NameNode with retries, and return the parsed JSON response.

    The operation must be safe to repeat.

    Args:
        target: File or folder of the operation.
        method: HTTP method.
        operation: WebHDFS operation, such as `LISTSTATUS`.
        model: Pydantic model that validates the response body.
        **parameters: Additional query parameters.

    Returns:
        The response body as an instance of `model`.

    Raises:
        OutcomeUnknown: No valid response arrived, even after retries.
        StorageError: The NameNode refused the operation.
    """

    def once() -> Shape:
        answer = send_once(target, method, operation, 200, **parameters)
        try:
            return model.model_validate_json(answer.content)
        except ValueError as error:
            raise target.unknown_outcome(
                target.servers, f"unexpected response to {operation}: {answer.content[:100]!r}"
            ) from error

    return with_retries(once, target.retry_pauses_s)


def send_once(
    target: WebHdfsTarget, method: str, operation: str, *expected: int, **parameters: str | int
) -> WebHdfsResponse:
    """Send one request to the active NameNode without retries, and return the response.

    NameNodes that are not active or cannot be reached are skipped.

    Args:
        target: File or folder of the operation.
        method: HTTP method.
        operation: WebHDFS operation, such as `RENAME`.
        *expected: HTTP statuses that indicate success; 200 if there are none.
        **parameters: Additional query parameters.

    Returns:
        Body, content type and location header of the response.

    Raises:
        NotActive: No NameNode is active and can be reached. The operation was not executed.
        OutcomeUnknown: The response is missing or invalid, so the operation may have been executed.
        StorageError: The NameNode responded with an error or another status.
    """
    query = urlencode({"op": operation, **_identity(target), **parameters})
    request = f"/webhdfs/v1{quote(target.file, safe='/')}?{query}"
    failures: list[NotActive] = []
    for namenode in order_namenodes(target.namenodes):
        begin_with(target.namenodes, namenode)
        address = urlsplit(f"{namenode}{request}")
        headers = (
            {"Authorization": target.authorize(address.hostname or "")} if target.authorize else {}
        )
        try:
            return _exchange(target, address, method, expected or (200,), headers)
        except NotActive as error:
            failures.append(error)
        except OutcomeUnknown:
            begin_after(target.namenodes, namenode)
            raise
    raise target.none_active(failures) from failures[-1]


def _identity(target: WebHdfsTarget) -> dict[str, str]:
    if target.authorize is not None:
        return {}
    if target.kerberos is None:
        return {"user.name": target.user}
    return {"delegation": target.kerberos.token()}


def run_on_datanode(
    target: WebHdfsTarget,
    method: str,
    operation: str,
    send: Callable[[SplitResult], T],
    receive: Callable[[WebHdfsResponse], T] | None = None,
    **parameters: str | int,
) -> T:
    """Request a DataNode from the NameNode, and call a function with the DataNode's address.

    If the outcome at the DataNode is unknown, the request is repeated, and this DataNode is
    excluded.

    Args:
        target: File that the operation reads or creates.
        method: HTTP method.
        operation: WebHDFS operation, `CREATE` or `OPEN`.
        send: Function that sends the request to the given address. It must be safe to repeat.
        receive: Function that evaluates the response of a gateway (HttpFS), which executes the
            operation instead of naming a DataNode. None if only a DataNode can execute it.
        **parameters: Additional query parameters.

    Returns:
        The result of the function.

    Raises:
        OutcomeUnknown: No DataNode gave a valid response, even after retries.
        ReadOnlyGateway: `receive` is None, and the server is a gateway.
        StorageError: The NameNode or a DataNode refused the operation.
    """
    excluded: dict[str, str] = {}
    expected = (307,) if receive is None else (307, 200)

    def once() -> T:
        asked = parameters | excluded
        excluded.clear()  # where it is the only one, it may be back
        try:
            redirect = send_once(target, method, operation, *expected, **asked)
        except StorageError as error:
            if asked == parameters:
                raise
            raise target.unknown_outcome(
                target.servers, f"and from the other servers: {error.what}"
            ) from error
        if receive is not None and not redirect.location:
            return receive(redirect)
        address = urlsplit(redirect.location)
        if receive is None and parse_qs(address.query).get("data") == ["true"]:
            what = f"{address.netloc} is a gateway, which redirects to itself"
            raise ReadOnlyGateway(target.path, target.url, what)
        try:
            return send(address)
        except OutcomeUnknown:
            excluded["excludedatanodes"] = address.hostname or ""
            raise

    return with_retries(once, target.retry_pauses_s)


def with_retries(action: Callable[[], T], pauses_s: Iterable[float]) -> T:
    """Call a function, and retry the call if it raises `OutcomeUnknown`.

    Args:
        action: Function to call. It must be safe to repeat.
        pauses_s: Pause before each retry, in seconds. The number of pauses is the maximum number of
            retries.

    Returns:
        The result of the first successful call.

    Raises:
        OutcomeUnknown: The last retry raised it. Any other exception is raised immediately, without
            a retry.
    """
    for pause_s in pauses_s:
        try:
            return action()
        except OutcomeUnknown:
            time.sleep(pause_s)
    return action()


def read_exactly(target: WebHdfsTarget, address: SplitResult, length: int) -> bytes:
    """Read a part of a file from a DataNode, and check its length.

    Args:
        target: File to read, for error messages.
        address: URL of the DataNode to which the NameNode redirected the request. It contains the
            offset and the length.
        length: Number of bytes that the URL requests.

    Returns:
        Exactly `length` bytes.

    Raises:
        OutcomeUnknown: The response is missing, has a different length, or is not binary.
        StorageError: The DataNode refused the request.
    """
    return check_content(target, address.netloc, _exchange(target, address, "GET", (200,)), length)


def check_content(
    target: WebHdfsTarget, server: str, answer: WebHdfsResponse, length: int
) -> bytes:
    """Return the content of a response, and check its type and length.

    Args:
        target: File that was read, for error messages.
        server: Address of the server, for error messages.
        answer: Response with a part of the file.
        length: Number of bytes that were requested.

    Returns:
        Exactly `length` bytes.

    Raises:
        OutcomeUnknown: The response has a different length, or is not binary.
    """
    if answer.kind != _BYTES or len(answer.content) != length:
        raise target.unknown_outcome(
            server,
            f"{len(answer.content)} of {length} bytes were received, with content type "
            f"{answer.kind or 'none'}",
        )
    return answer.content


def open_connection(address: SplitResult, ca: Path | None) -> http.client.HTTPConnection:
    """Open a new HTTP or HTTPS connection to the server of a URL.

    Args:
        address: Parsed URL; its scheme selects HTTP or HTTPS.
        ca: PEM file with the CA certificates for HTTPS; None for those of the system.

    Returns:
        A connected connection, which the caller must close.

    Raises:
        OSError: The server cannot be reached, or its certificate is not valid.
        http.client.HTTPException: The connection failed at the HTTP level.
        ValueError: The address has no host or an invalid port.
    """
    if not address.hostname:
        url = address._replace(query="").geturl()  # a query may contain a delegation token
        raise ValueError(f"{url!r} contains no server name")
    host, port = address.hostname, address.port
    connection = (
        http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S[0], context=client_context(ca))
        if address.scheme == "https"
        else http.client.HTTPConnection(host, port, timeout=TIMEOUT_S[0])
    )
    connection.connect()
    connection.sock.settimeout(TIMEOUT_S[1])
    return connection


def read_response(
    connection: http.client.HTTPConnection, target: WebHdfsTarget, *expected: int
) -> WebHdfsResponse:
    """Read the complete response to a request that has already been sent.

    Args:
        connection: Connection on which the request was sent.
        target: File of the request, for error messages.
        *expected: Expected HTTP statuses, at least one.

    Returns:
        Body, content type and location header of the response.

    Raises:
        StorageError: The response has another status. The subclass corresponds to Hadoop's
            exception. It is OutcomeUnknown if the response does not show whether the operation was
            executed.
        OSError: The connection broke.
        http.client.HTTPException: The response is not valid HTTP.
    """
    answer = connection.getresponse()
    content = answer.read()
    if answer.status in expected:
        return WebHdfsResponse(
            content, answer.headers.get("Content-Type", ""), answer.headers.get("Location", "")
        )
    try:
        refusal = _Refusal.model_validate_json(content).RemoteException
    except ValueError:
        refusal = _RemoteException(exception="")
    message = (refusal.message or answer.reason).partition("\n")[0]
    kind = _error_class(answer.status, refusal.exception, message)
    if issubclass(kind, TokenRejected) and target.kerberos is not None:
        target.kerberos.refresh_soon()
    text = f"{connection.host}:{connection.port} answered {refusal.exception or answer.status}: {message}"
    raise kind(target.path, target.url, text[:_MESSAGE_CHARACTERS_MAX])


def _error_class(status: int, exception: str, message: str) -> type[StorageError]:
    # A status alone may come from a proxy; a 5xx without an exception explains nothing.
    if "InvalidToken" in f"{exception}: {message}":
        return NotActive if "StandbyException" in message else TokenRejected
    if "safe mode" in message:
        return SafeMode
    if any(words in message for words in _NO_ROOM):
        return NoSpace
    if exception in _EXCEPTIONS:
        return _EXCEPTIONS[exception]
    if not exception and status in (401, 403):
        return NotAuthenticated if status == 401 else AccessDenied
    if exception in _NOT_ACTIVE:
        return NotActive
    # A DataNode that uses a token may still need a login of its own, such as after a failover.
    lost = (
        not exception
        or status >= 500
        or _NO_DATANODE in message
        or exception == "KerberosAuthException"
    )
    return OutcomeUnknown if lost else StorageError


def _exchange(
    target: WebHdfsTarget,
    address: SplitResult,
    method: str,
    expected: tuple[int, ...],
    headers: Mapping[str, str] = MappingProxyType({}),
) -> WebHdfsResponse:
    try:
        connection = _thread_connection(address, target.ca)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise target.unreachable(address.netloc, error) from error
    try:
        connection.request(method, f"{address.path}?{address.query}", headers=headers)
        return read_response(connection, target, *expected)
    except (OSError, http.client.HTTPException, ValueError) as error:
        connection.close()  # what it would say next belongs to this request
        raise target.unknown_outcome(address.netloc, error) from error


class _Connections(dict[tuple[int, str, str, Path | None], http.client.HTTPConnection]):
    def __del__(self) -> None:
        for connection in self.values():
            connection.close()


def _thread_connection(address: SplitResult, ca: Path | None) -> http.client.HTTPConnection:
    mine = _local.__dict__.setdefault("connections", _Connections())
    server = os.getpid(), address.scheme, address.netloc, ca
    if server not in mine or mine[server].sock is None:
        mine[server] = open_connection(address, ca)
    return cast(http.client.HTTPConnection, mine[server])
