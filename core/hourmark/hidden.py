"""What of a setting's value may be shown: never a password or a key.

Settings of our own hold secrets in URLs only. Maps whose names are others' (librdkafka's, Spark's) may hold them anywhere, so
there a name that speaks of security is hidden unless it is known to be harmless: too much is hidden rather than too little.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

HIDDEN: Final = "(hidden)"
_NAME: Final = re.compile(r"pass|pwd|secret|token|credential|jaas|key|pem|auth|sasl|ssl", re.IGNORECASE)
_PLAIN_NAMES: Final = (
    "sasl.mechanism",
    "sasl.mechanisms",
    "ssl.ca.location",
    "ssl.endpoint.identification.algorithm",
    "tokens_required",
    "token_file",
)
# Options within one text, such as `-Djavax.net.ssl.keyStorePassword=…` for Java.
_ASSIGNED: Final = re.compile(r"(pass|pwd|secret|token|credential|jaas|key)[\w.-]*[\"']?\s*[=:]", re.IGNORECASE)
# Greedy, as a password may hold an `@` or a `/` of its own. SQLite has no users, and a path may hold an `@`.
_USER: Final = re.compile(r"^(?!sqlite:///)([a-z][\w+.-]*:/+)?.*@", re.IGNORECASE | re.DOTALL)
# A URL that ends before its host: what is in the place of a port is none, but a password.
_CUT_OFF: Final = re.compile(r"^([a-z][\w+.-]*:/{1,2})[^:/?#@\[\]]*:(?!\d{0,5}(?:[/?#,]|$))[^@]*$", re.IGNORECASE)
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


class FromElsewhere(str):
    """A text of which part stood in a file or a variable that a setting refers to: whoever writes that, means a secret."""

    __slots__ = ()


def is_secret_name(name: str) -> bool:
    """Whether the whole value of a setting, or of an entry of a table, is a secret, by its name."""
    return bool(_SECRET_NAME.search(name)) and not _NO_SECRET.search(name)


def shown(value: Any, name: str = "") -> Any:
    """The value with `(hidden)` in place of secrets; `name` is that of the setting, or of the entry of a map."""
    if isinstance(value, FromElsewhere) or (value and _NAME.search(name) and name not in _PLAIN_NAMES):
        return HIDDEN
    if isinstance(value, Mapping):
        return {key: shown(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [shown(inner, name) for inner in value]
    if not isinstance(value, str) or re.match("/(?!/)", value):  # a path, or a class path
        return value
    without_user = _CUT_OFF.sub(rf"\1{HIDDEN}", _USER.sub(rf"\1{HIDDEN}@", value))
    without_options = _OPTIONS.sub(rf"\1{HIDDEN}", without_user)
    return HIDDEN if _ASSIGNED.search(without_options) else without_options
