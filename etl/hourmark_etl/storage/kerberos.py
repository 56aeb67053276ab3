"""Delegation tokens of HDFS: how a process that has a Kerberos keytab authenticates its requests.

A process logs in with SPNEGO only to obtain a delegation token, which all other requests contain.
So a KDC that is away affects requests only after the token has expired (24 hours by default,
`dfs.namenode.delegation.token.renew-interval`). A new token is obtained when half of this time is
over. If that fails, the current token remains in use, and the login is repeated every 30 seconds.

A login that is pickled for Spark's executors becomes its current token: executors need neither the
keytab nor a KDC. Tokens are registered as secrets, so logs and messages do not contain them.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

from pydantic import BaseModel

from hourmark.clock import Clock, SystemClock
from hourmark.config.redaction import add_secret
from hourmark_etl.storage.errors import AccessDenied, StorageError
from hourmark_etl.storage.spnego import NegotiationFailed, negotiate_header
from hourmark_etl.storage.webhdfs_http import WebHdfsTarget, send_once, with_retries

_LOG: Final = logging.getLogger(__name__)
RETRY_S: Final = 30.0
_RENEWAL_RATIO: Final = 0.5


class LoginFailed(StorageError):
    """Raised if a process has no valid delegation token and cannot obtain one.

    The operation was not executed.
    """

    next_step = (
        "check that the KDC can be reached, storage.principal, storage.keytab, /etc/krb5.conf, and "
        "the clocks of this machine and the NameNodes; the login is repeated automatically"
    )


class _Token(BaseModel):
    urlString: str


class _Issued(BaseModel):
    Token: _Token | None


class _Renewed(BaseModel, strict=True):
    long: int


@dataclasses.dataclass(frozen=True, slots=True)
class ReceivedToken:
    """The delegation token that another process received from the driver.

    Attributes:
        text: The token; empty if the driver had none.
        url: `hdfs://…` URL of the file system, for messages.
        expires_s: Time of its expiry, in Unix seconds.
        due_s: Time at which the driver replaces it, in Unix seconds.
        why: Why the driver had no token; empty if it had one.
    """

    text: str = dataclasses.field(repr=False)
    url: str
    expires_s: float = 0.0
    due_s: float = 0.0
    why: str = ""

    def __post_init__(self) -> None:
        if self.text:
            add_secret(self.text)

    def __reduce__(self) -> tuple[type[ReceivedToken], tuple[str, str, float, float, str]]:
        # Calls __post_init__, unlike the default.
        return ReceivedToken, (self.text, self.url, self.expires_s, self.due_s, self.why)

    def token(self) -> str:
        """Return the token.

        Raises:
            LoginFailed: The driver had no token.
        """
        if not self.text:
            raise LoginFailed("", self.url, f"the driver has no delegation token: {self.why}")
        return self.text

    def refresh_soon(self) -> None:
        """Do nothing: the next task receives another token."""


class KerberosLogin:
    """The delegation token of a principal for one file system, obtained again before it expires.

    Instances can be shared by threads. A pickled instance becomes a `ReceivedToken`.

    Args:
        root: Root folder of the file system. It names the NameNodes.
        principal: Kerberos principal.
        keytab: Keytab of the principal; None for the ticket cache of the process.
        negotiate: Function with the parameters and exceptions of `negotiate_header`.
        clock: Clock.
    """

    def __init__(
        self,
        root: WebHdfsTarget,
        principal: str,
        keytab: Path | None,
        negotiate: Callable[[str, str, Path | None], str] = negotiate_header,
        clock: Clock | None = None,
    ) -> None:
        self._root = dataclasses.replace(root, authorize=self._authorize)
        self._principal, self._keytab, self._negotiate = principal, keytab, negotiate
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._text = ""
        self._expires_s = 0.0  # Unix seconds, as the three below
        self._obtained_s = 0.0
        self._due_s = 0.0  # next attempt to obtain a token
        self._failing_since_s = 0.0  # 0 if the last attempt succeeded
        self._failure = ""

    def token(self) -> str:
        """Return a valid delegation token, and obtain a new one if it is due.

        While the current token is valid, only one thread waits for the NameNode and the KDC.

        Returns:
            The token in the encoding of WebHDFS.

        Raises:
            LoginFailed: No token is valid, and none could be obtained.
            StorageError: No token is valid, and the NameNode did not issue one.
        """
        if self._now_s() >= self._due_s and self._lock.acquire(blocking=not self._is_valid()):
            try:
                if self._now_s() >= self._due_s:
                    self._refresh()
            finally:
                self._lock.release()
        if not self._is_valid():
            self._fail(self._failure)
        return self._text

    def refresh_soon(self) -> None:
        """Obtain a new token with the next request, because a server rejected the current one.

        The current token remains in use if that fails: a standby may not know it yet. A token that
        was obtained less than 30 seconds ago is not replaced.
        """
        if not self._failing_since_s:
            self._due_s = min(self._due_s, max(self._now_s(), self._obtained_s + RETRY_S))

    def adopt(self, received: ReceivedToken) -> None:
        """Use the token of the driver until it is due, unless this login has a newer one.

        So a process that the driver starts while no KDC responds needs no login.

        Args:
            received: The token.
        """
        with self._lock:
            if received.text and received.expires_s > self._expires_s:
                self._text, self._expires_s = received.text, received.expires_s
                self._due_s = received.due_s

    def __reduce__(self) -> tuple[type[ReceivedToken], tuple[str, str, float, float, str]]:
        text = why = ""
        try:
            text = self.token()
        except StorageError as error:  # pickling must not fail; the task reports the missing token
            why = error.what
        return ReceivedToken, (text, self._root.url, self._expires_s, self._due_s, why)

    def _now_s(self) -> float:
        return self._clock.now_ms() / 1000

    def _is_valid(self) -> bool:
        return self._now_s() < self._expires_s

    def _refresh(self) -> None:
        try:
            self._obtain()
        except StorageError as error:
            if not self._is_valid() and not isinstance(error, LoginFailed):
                raise  # the caller retries, as after any failure of a NameNode
            self._note_failure(error)
        else:
            self._note_success()

    def _note_failure(self, error: StorageError) -> None:
        now_s = self._now_s()
        self._due_s, self._failure = now_s + RETRY_S, error.what
        if self._failing_since_s:
            return
        self._failing_since_s = now_s
        _LOG.warning(
            "Kerberos login of %s failed: %s; the delegation token is valid for %.0f s, and the "
            "login is repeated every %.0f s",
            self._principal,
            error.what,
            max(0.0, self._expires_s - now_s),
            RETRY_S,
        )

    def _note_success(self) -> None:
        if self._failing_since_s:
            _LOG.warning(
                "resolved after %.0f s: Kerberos login of %s failed",
                self._now_s() - self._failing_since_s,
                self._principal,
            )
        self._failing_since_s = 0.0

    def _obtain(self) -> None:
        try:
            token = _Issued.model_validate_json(self._send("GET", "GETDELEGATIONTOKEN")).Token
            if token is None:
                self._fail("HDFS issued no delegation token; it does not use Kerberos")
            text = token.urlString
            add_secret(text)
            renewed = self._send("PUT", "RENEWDELEGATIONTOKEN", token=text)
            expires_s = _Renewed.model_validate_json(renewed).long / 1000
        except ValueError:
            # Not the error or its cause, which may contain the token.
            what = "unexpected response to a request for a delegation token"
            raise self._root.unknown_outcome(self._root.servers, what) from None
        now_s = self._now_s()
        if expires_s <= now_s:
            self._fail(
                f"a new delegation token has expired {now_s - expires_s:.0f} s ago; compare the "
                "clocks of this machine and the NameNodes"
            )
        self._text, self._obtained_s, self._expires_s = text, now_s, expires_s
        self._due_s = now_s + (expires_s - now_s) * _RENEWAL_RATIO

    def _send(self, method: str, operation: str, **parameters: str) -> bytes:
        send = functools.partial(send_once, self._root, method, operation, **parameters)
        try:
            # Repeated, because each server may have closed a kept connection.
            return with_retries(send, [0.0] * len(self._root.namenodes)).content
        except AccessDenied as error:
            self._fail(error.what)

    def _authorize(self, host: str) -> str:
        try:
            return self._negotiate(host, self._principal, self._keytab)
        except NegotiationFailed as error:
            self._fail(f"no ticket of {self._principal} for HTTP/{host}: {error}")

    def _fail(self, what: str) -> NoReturn:
        raise LoginFailed("", self._root.url, what)


@functools.cache
def kerberos_login(root: WebHdfsTarget, principal: str, keytab: Path | None) -> KerberosLogin:
    """Return the login of this process for a file system, which is created once.

    Args:
        root: Root folder of the file system. It names the NameNodes.
        principal: Kerberos principal.
        keytab: Keytab of the principal; None for the ticket cache of the process.
    """
    return KerberosLogin(root, principal, keytab)
