"""References to secrets outside the configuration: `${file:/path}` and `${env:NAME}`.

They may be used in or within the text of any setting, as in Kafka's own tools (KIP-297, KIP-421),
so that a password is stored in one place only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hourmark.config.redaction import ReferencedText, add_secret
from hourmark.errors import ConfigError

_REFERENCE: Final = re.compile(r"\$\{(file|env):([^{}]*)\}")
_BYTES_MAX: Final = 64 * 1024


def resolve_references(value: Any, name: str = "") -> Any:
    """Replace references in a setting's value with the content of files and environment variables.

    A reference has the form `${file:/absolute/path}` or `${env:NAME}`. A string may contain
    references and other text.

    Args:
        value: A setting, or a tree of mappings and lists of settings.
        name: Dotted name of the setting, for error messages.

    Returns:
        A copy of the value. Strings with references become `ReferencedText` objects. The inserted
        contents are registered as secrets for redaction.

    Raises:
        ConfigError: A file or variable cannot be read. The message contains the setting and the
            reference, but never the content.
    """
    if isinstance(value, Mapping):
        return {
            key: resolve_references(inner, f"{name}.{key}" if name else str(key))
            for key, inner in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [resolve_references(inner, name) for inner in value]
    if not isinstance(value, str):
        return value
    text, count = _REFERENCE.subn(
        lambda found: _secret(found[1], found[2], f"{name} = {found[0]}"), value
    )
    return ReferencedText(text) if count else value


def _secret(kind: str, where: str, said: str) -> str:
    text = _read(kind, where, said)
    add_secret(text)
    return text


def _read(kind: str, where: str, said: str) -> str:
    if kind == "env":
        if where not in os.environ:
            raise ConfigError(
                f"{said}: the environment variable {where} is not set; set it, or use "
                f"${{file:/path}}"
            )
        return os.environ[where]
    file = Path(where)
    if not file.is_absolute():
        raise ConfigError(f"{said}: the path is not absolute; write ${{file:/path}}")
    try:
        with file.open("rb") as opened:
            content = opened.read(_BYTES_MAX + 1)
        text = content.decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(
            f"{said}: cannot be read: {why}; store the secret in this file, and make it readable "
            "for this process"
        ) from None
    if not text or len(content) > _BYTES_MAX:
        raise ConfigError(
            f"{said}: a secret must have 1 to {_BYTES_MAX} bytes; the file must contain nothing else"
        )
    return text
