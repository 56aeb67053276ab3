"""Redaction of secrets in everything that a process reports about itself.

A process-wide registry holds the secrets of its settings: passwords in URLs, values of settings and
table entries whose names mark them as secret, and texts inserted for `${file:…}` or `${env:…}`.
Loading a configuration fills it, and so does unpickling one in a worker process of the service or a
Spark executor.

`redact` replaces registered secrets in text. It is applied to all log lines, to the messages of
errors that end a command, to tracebacks that Python prints (`install_redaction`), and to reports
that quote errors, such as that of `hourmark doctor`. Data on standard output is never changed.

`redact_setting` hides the secret parts of one setting's value. Hourmark's own settings contain
secrets in URLs only. In maps with names of other products (librdkafka, Spark), each entry whose
name concerns security is hidden unless it is known to be harmless.

A secret is found in the encodings in which libraries repeat it (percent-encoded, escaped, in an
Authorization header), regardless of case, and in pieces: a parser that reads
`http://user:pass/word@host` reports `pass` as an invalid port.

Limits: secrets and pieces of fewer than 4 characters, numbers of fewer than 8 digits and a few
ordinary words are not searched for, because ordinary text is full of them. A secret of fewer than
12 characters is replaced only as a whole word.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from urllib.parse import quote, unquote

HIDDEN: Final = "(hidden)"
_NAME: Final = re.compile(
    r"pass|pwd|secret|token|credential|jaas|key|pem|auth|sasl|ssl", re.IGNORECASE
)
_PLAIN_NAMES: Final = (
    "keytab",
    "sasl.mechanism",
    "sasl.mechanisms",
    "ssl.ca.location",
    "ssl.endpoint.identification.algorithm",
    "tokens_required",
    "token_file",
)
# Options within one text, such as `-Djavax.net.ssl.keyStorePassword=…` for Java.
_ASSIGNED_VALUE: Final = re.compile(
    r"(pass|pwd|secret|token|credential|jaas|key)[\w.-]*[\"']?\s*[=:]", re.IGNORECASE
)
# Greedy, because a password may contain `@` or `/`. SQLite has no users, and a path may contain
# `@`.
_URL_USER: Final = re.compile(r"^(?!sqlite:///)([a-z][\w+.-]*:/+)?.*@", re.IGNORECASE | re.DOTALL)
# A URL that ends before its host: what appears to be the port is a password.
_URL_CUT_OFF: Final = re.compile(
    r"^([a-z][\w+.-]*:/{1,2})[^:/?#@\[\]]*:(?!\d{0,5}(?:[/?#,]|$))[^@]*$", re.IGNORECASE
)
_SECRET_NAME: Final = re.compile(
    r"pass|pasw|pwd|secret|token|credential|jaas|pem$|user\.?info|(access|account|api|private|keystore)[._-]?key",
    re.IGNORECASE,
)
# Where a secret is, or how it is used; never the secret itself.
_NO_SECRET: Final = re.compile(
    r"(file|location|path|url|uri|class|type|provider|algorithm|mechanisms?|enabled?|required|seconds|ms)$",
    re.IGNORECASE,
)
_OPTIONS: Final = re.compile(r"(://[^?]*\?).*", re.DOTALL)


class ReferencedText(str):
    """The value of a setting that was read, in whole or in part, from a file or the environment.

    The configuration contains a reference instead, such as `${file:/path}` or `${env:NAME}`. The
    whole value is treated as a secret.
    """

    __slots__ = ()


def is_secret_name(name: str) -> bool:
    """Return whether the name of a setting indicates that its whole value is a secret.

    Examples of such names are `password` and `api.key`. `token_file` is not, because its value is
    only a path.

    Args:
        name: Name of a setting or table entry, case-insensitive.
    """
    return bool(_SECRET_NAME.search(name)) and not _NO_SECRET.search(name)


def redact_setting(value: Any, name: str = "") -> Any:
    """Replace secrets in a setting's value with `(hidden)`, for display.

    Passwords in URLs are replaced too. Numbers and other values without secrets are returned
    unchanged.

    Args:
        value: A value, or a tree of mappings and lists.
        name: Name of the setting or map entry. A security-related name, such as `sasl.password`,
            hides the whole value.

    Returns:
        A redacted copy of the value. Tuples become lists.
    """
    if isinstance(value, ReferencedText) or (
        value and _NAME.search(name) and name not in _PLAIN_NAMES
    ):
        return HIDDEN
    if isinstance(value, Mapping):
        return {key: redact_setting(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact_setting(inner, name) for inner in value]
    if not isinstance(value, str) or re.match("/(?!/)", value):  # a path, or a class path
        return value
    if "@" in value.partition("?")[2] and _ASSIGNED_VALUE.search(value):
        return HIDDEN  # an option's value contains `@`, or a password `?`: which part is which?
    without_user = _URL_CUT_OFF.sub(rf"\1{HIDDEN}", _URL_USER.sub(rf"\1{HIDDEN}@", value))
    without_options = _OPTIONS.sub(rf"\1{HIDDEN}", without_user)
    return HIDDEN if _ASSIGNED_VALUE.search(without_options) else without_options


_CHARACTERS_MIN: Final = 4
_DIGITS_MIN: Final = 8
_ANYWHERE_CHARACTERS_MIN: Final = 12  # a shorter secret may also be a part of an ordinary word
_ORDINARY: Final = frozenset({"hourmark", "password", "hidden", "true", "false", "none"})

# The start of a URL, complete or mistyped, and its user name, which has no delimiters.
_URL: Final = re.compile(
    r"\s*(?P<scheme>(?:[a-z][\w+.-]*:/{1,2}|//)(?!/))?(?P<rest>.*)", re.IGNORECASE | re.DOTALL
)
_NEXT_URL: Final = re.compile(r"[,;\s]+(?=[a-z][\w+.-]*:/)", re.IGNORECASE)
_USER: Final = re.compile(r"[\w.+~%-]*")
# A URL that ends before its host: what appears to be the port is a password.
_CUT_OFF: Final = re.compile(r"[^:/?#@\[\]]*:(?!\d{0,5}(?:[/?#,]|$))(.*)", re.DOTALL)
_ASSIGNED: Final = re.compile(r"""([\w.-]+)["']?\s*[=:]\s*("[^"]*"|'[^']*'|[^\s;,&"']+)""")
_OPTION: Final = re.compile(
    r"[?&]([\w.-]+)=([^&]*)"
)  # of a URL, where a value may contain a space or a quote
_JAVA_PROPERTY: Final = re.compile(
    r"-D([\w.-]+)=(.*?)(?=\s+-|$)", re.DOTALL
)  # a mistyped value may contain anything
_DELIMITERS: Final = re.compile(r"[/?#@:\[\]\\\s,;&=%]+")
# The user information of any URL in a text, except the example in messages.
_USER_INFO: Final = re.compile(r"(://)(?!user(?::password)?@)[^\s/?#'\"<>`]*@")


class _Registry:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: set[str] = set()
        self._forms: set[str] = set()
        self._pattern: re.Pattern[str] | None = None

    def add(self, secrets: Iterable[str]) -> None:
        with self._lock:
            new = {secret for secret in secrets if secret} - self._seen
            if not new:
                return
            self._seen |= new
            self._forms.update(form for secret in new for form in _forms(secret))
            longest_first = sorted(self._forms, key=len, reverse=True)
            joined = "|".join(map(_as_pattern, longest_first))
            self._pattern = re.compile(joined, re.IGNORECASE) if joined else None

    def redact(self, text: str) -> str:
        pattern = self._pattern
        return text if pattern is None else pattern.sub(HIDDEN, text)

    def clear(self) -> None:
        with self._lock:
            self._seen, self._forms, self._pattern = set(), set(), None


_REGISTRY: Final = _Registry()


def add_secret(secret: str) -> None:
    """Register a secret for the whole process, so that `redact` replaces it in any string.

    The escaped and percent-encoded forms of the secret are registered too. Secrets that are shorter
    than 4 characters, or are common words such as `password`, are ignored. Thread-safe.

    Args:
        secret: The secret.
    """
    _REGISTRY.add([secret])


def add_secrets_of(settings: Any) -> None:
    """Register all secrets in a tree of settings, so that `redact` replaces them in any string.

    `secrets_in` determines which values are secrets. Thread-safe.

    Args:
        settings: Mappings, lists and values, validated or not.
    """
    _REGISTRY.add(secrets_in(settings))


def forget_secrets() -> None:
    """Remove all registered secrets of this process.

    For tests: the secrets of one test must not affect another.
    """
    _REGISTRY.clear()


def redact(text: str) -> str:
    """Replace all known secrets in a string with `(hidden)`, and return the result.

    Known secrets are those registered in this process with `add_secret` or `add_secrets_of`. User
    names and passwords in URLs are replaced even if they are not registered.

    Args:
        text: Any string, such as a log line or an error message.
    """
    text = _REGISTRY.redact(text)
    return _USER_INFO.sub(rf"\1{HIDDEN}@", text) if "@" in text else text


def secrets_in(value: Any, name: str = "") -> Iterator[str]:
    """Yield the secrets in a setting's value or in a tree of settings.

    A secret is one of the following:

    - the value of a setting with a secret name (`is_secret_name`)
    - a value with resolved references
    - a password in a URL
    - the value of an option such as `password=…` within a string

    Args:
        value: Mappings, lists and values, validated or not.
        name: Name of the setting or table entry; empty for the root.

    Yields:
        Secrets, and parts of secrets that may appear alone in messages. May contain duplicates.
    """
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from secrets_in(inner, name if is_secret_name(name) else str(key))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from secrets_in(inner, name)
    elif isinstance(value, (str, Path)) or type(value) is int:
        text = str(value)
        is_reference = (
            isinstance(value, ReferencedText) and "://" not in text
        )  # only a part of a URL is secret
        if is_reference or is_secret_name(name):
            yield text
        yield from _secrets_within(text)


def _secrets_within(text: str) -> Iterator[str]:
    for url in _NEXT_URL.split(text.strip()):
        yield from _secrets_of_url(url)
    for name, assigned in [
        match for form in (_ASSIGNED, _OPTION, _JAVA_PROPERTY) for match in form.findall(text)
    ]:
        if is_secret_name(name):
            yield from _with_pieces(assigned.strip("\"'"))


def _secrets_of_url(url: str) -> Iterator[str]:
    found = _URL.fullmatch(url)
    assert found is not None, "every text fits"
    scheme, rest = found["scheme"] or "", found["rest"]
    user_info, at, _ = rest.rpartition("@")
    if not at:
        cut_off = _CUT_OFF.fullmatch(rest) if scheme else None
        if cut_off is not None:
            yield from _with_pieces(cut_off[1])
        return
    user, colon, password = user_info.partition(":")
    if colon and _USER.fullmatch(user):
        yield from _with_pieces(password)
        for pair in ((user, password), (unquote(user), unquote(password))):
            yield base64.b64encode(":".join(pair).encode()).decode().rstrip("=")
    elif scheme.lower().startswith("http"):
        # In an HTTP URL, a user name without a password is a token.
        yield from _with_pieces(user_info)


def _with_pieces(password: str) -> Iterator[str]:
    # Parsers report pieces of a password if its delimiters are not escaped.
    yield password
    for form in (password, unquote(password)):
        yield from _DELIMITERS.split(form)


def _forms(secret: str) -> Iterator[str]:
    for plain in {secret, secret.strip(), unquote(secret)}:
        escaped = (
            repr(plain)[1:-1],
            json.dumps(plain)[1:-1],
            json.dumps(plain, ensure_ascii=False)[1:-1],
        )
        for form in (plain, *escaped, quote(plain), quote(plain, safe="")):
            least = _DIGITS_MIN if form.isdigit() else _CHARACTERS_MIN
            if len(form) >= least and form.lower() not in _ORDINARY:
                yield form


def _as_pattern(form: str) -> str:
    pattern = re.escape(form)
    return (
        pattern
        if len(form) >= _ANYWHERE_CHARACTERS_MIN
        else rf"(?<![A-Za-z0-9_]){pattern}(?![A-Za-z0-9_])"
    )


class RedactingFormatter(logging.Formatter):
    """A log formatter that replaces known secrets in messages and tracebacks with `(hidden)`."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


def install_redaction() -> None:
    """Redact secrets in the tracebacks of uncaught exceptions. Call once at process startup.

    The function replaces `sys.excepthook` and `threading.excepthook`. It also redacts the messages
    that Python logs if no log handler is configured (`logging.lastResort`). Configured log handlers
    need their own `RedactingFormatter`.
    """
    sys.excepthook = print_traceback
    threading.excepthook = _print_thread_traceback
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(RedactingFormatter())


def print_traceback(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print the traceback of an exception to stderr with secrets replaced by `(hidden)`.

    `install_redaction` installs it as `sys.excepthook`.

    Args:
        kind: Class of the exception.
        error: The exception.
        trace: Its traceback; None if there is none.
    """
    _print_error("".join(traceback.format_exception(kind, error, trace)))


def _print_thread_traceback(failed: threading.ExceptHookArgs) -> None:
    if failed.exc_type is SystemExit:
        return
    name = failed.thread.name if failed.thread is not None else str(threading.get_ident())
    lines = traceback.format_exception(failed.exc_type, failed.exc_value, failed.exc_traceback)
    _print_error(f"Exception in thread {name}:\n{''.join(lines)}")


def _print_error(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(redact(text))
        sys.stderr.flush()
