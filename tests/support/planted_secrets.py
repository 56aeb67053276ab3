"""Secrets planted into every setting that takes text, mistyped as people mistype them, and a search
for them in what is shown.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from hourmark.config.loading import Config

# Neither may be shown, alone or together: a parser that stops within a password reports a part of
# it.
LEFT, RIGHT = "PlantedLeft7x", "pw77Right9q"
WITHIN_PASSWORDS: Final = (
    "",
    "/",
    "@",
    "%",
    "+",
    "?",
    "#",
    ":",
    " ",
    "\n",
    "\t",
    "%2",
    "%40",
    "%2F",
    "//",
    "&",
    "=",
    "==",
    "[",
    "\\",
    '"',
    "'",
    "ü",
)
URLS: Final = (
    "{scheme}://{user}:{password}@127.0.0.1:1/path",
    "{scheme}://{user}:{password}@127.0.0.1",
    "{scheme}:/{user}:{password}@127.0.0.1:1",
    "{scheme}:{user}:{password}@127.0.0.1:1",
    "{user}:{password}@127.0.0.1:1",
    "//{user}:{password}@127.0.0.1:1",
    " {scheme}://{user}:{password}@127.0.0.1:1 ",
    "{scheme}://{user}:{password}@127.0.0.1:port",
    "{scheme}://{user}:{password}@127.0.0.1:99999",
    "{scheme}://{user}:{password}@127.0.0.1:",
    "{scheme}://{user}:{password}@",
    "{scheme}://{user}:{password}",
    "{scheme}://{user}:{password}@[::1",
    "{scheme}://one:1,{scheme}://{user}:{password}@two:1",
    "{scheme}://127.0.0.1:1/path?user={user}&password={password}",
)
SCHEMES: Final = (
    "http",
    "https",
    "htps",
    "HTTP",
    "postgresql",
    "postgres",
    "postgresql+psycopg",
    "mysql",
    "hdfs",
    "sqlite",
    "SASL_SSL",
)
ENTRIES: Final[Mapping[str, str]] = {
    "sasl.password": "{password}",
    "sasl.pasword": "{password}",
    "SASL.PASSWORD": "{password}",
    "ssl.key.password": "{password}",
    "ssl.key.pem": "-----BEGIN PRIVATE KEY-----\n{password}\n-----END PRIVATE KEY-----",
    "ssl.keystore.password": "{password}",
    "sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" '
        'password="{password}";'
    ),
    "sasl.oauthbearer.client.secret": "{password}",
    "basic.auth.user.info": "u:{password}",
    "spark.hadoop.fs.s3a.secret.key": "{password}",
    "spark.ssl.keyPassword": "{password}",
    "spark.driver.extraJavaOptions": "-Xmx1g -Djavax.net.ssl.keyStorePassword={password}",
}

Keys = tuple[str | int, ...]


class Leaf(NamedTuple):
    """A setting that takes text. `is_table`: it takes a table of names and texts."""

    keys: Keys
    is_table: bool = False

    def __str__(self) -> str:
        return ".".join(map(str, self.keys))


def leaves(annotation: Any = Config, keys: Keys = ()) -> Iterator[Leaf]:
    """Every setting of the typed configuration that takes text, also within lists and tables."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            yield from leaves(field.annotation, (*keys, name))
    elif origin is typing.Annotated:
        yield from leaves(arguments[0], keys)
    elif origin is list:
        yield from leaves(arguments[0], (*keys, 0))
    elif origin is dict and typing.get_args(annotation)[1] is str:
        yield Leaf(keys, is_table=True)
    elif origin is dict:
        yield from leaves(arguments[1], (*keys, "other"))
    elif annotation in (str, Path):
        yield Leaf(keys)
    elif origin is not typing.Literal:
        for inner in arguments:
            yield from leaves(inner, keys)


def settings_with(leaf: Leaf, value: object, others: Mapping[str, Any]) -> dict[str, Any]:
    """The settings `others`, and this one beside them."""
    tree: dict[str, Any] = json.loads(json.dumps(others))
    inner: Any = tree
    for key, following in zip(leaf.keys, (*leaf.keys[1:], None), strict=True):
        made: Any = value if following is None else [] if isinstance(following, int) else {}
        if isinstance(key, int):
            if not inner:
                inner.append(made)
        elif following is None or key not in inner:
            inner[key] = made
        inner = inner[key]
    return tree


def toml(value: object) -> str:
    """The value in TOML, tables within one line."""
    if isinstance(value, Mapping):
        return (
            "{"
            + ", ".join(f"{json.dumps(key)} = {toml(inner)}" for key, inner in value.items())
            + "}"
        )
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def toml_file(settings: Mapping[str, object]) -> str:
    """A configuration file with these groups."""
    return "".join(f"{name} = {toml(value)}\n" for name, value in settings.items())


def leaks(text: str) -> list[str]:
    """The lines that show a part of the planted secret."""
    return [
        line
        for line in text.splitlines()
        if any(part.lower() in line.lower() for part in (LEFT, RIGHT))
    ]


def shown_by(main: Callable[[], object]) -> str:
    """All that the call writes to stdout and stderr, and the traceback with which Python would end
    it.
    """
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            main()
        except SystemExit:
            pass
        except BaseException:  # noqa: BLE001  # as Python does
            sys.excepthook(*sys.exc_info())
    return out.getvalue()


def passwords() -> Sequence[str]:
    """The planted secret, with what is often left unescaped in the middle, and at its end."""
    return [
        *(LEFT + between + RIGHT for between in WITHIN_PASSWORDS),
        LEFT + RIGHT + "==",
        LEFT + RIGHT + "@",
        LEFT + RIGHT + "/",
    ]
