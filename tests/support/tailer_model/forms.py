"""How the lines of each source look, which of them are one record, and what leads to them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tests.support.tailer_model.packing import suffix_of

POD: Final = "pods/shop_web-1_0a1b"
CONTAINER_LOG: Final = f"{POD}/web/0.log"
POD_FIELDS: Final = '{"container":"web","namespace":"shop","pod":"web-1","pod_uid":"0a1b"}'
FLUSH_S: Final = 0.2
FOLLOWED: Final = {  # what followed names begin with, by source
    "app": "logs/app.log",
    "link": "store/",
    "records": "records/java.log",
    "pods": f"{POD}/web/",
}
SOURCES: Final = tuple(FOLLOWED)
_NUMBER: Final = re.compile(rb"(?:\t|\S{30} std(?:out|err) [PF] )?(\d{8}) ")
_STREAM_AND_TAG: Final = re.compile(rb"^\S{30} (std\w+) ([PF]) ", re.MULTILINE)


def source_of(name: str) -> str:
    """Whose file this is, or was before it was renamed."""
    return next(
        (source for source, first in FOLLOWED.items() if name.split("/")[0] == first.split("/")[0]),
        "app",
    )


def is_followed(name: str) -> bool:
    """Whether a source leads to this name."""
    return name.startswith(tuple(FOLLOWED.values())) and not suffix_of(name)


def joins_lines(source: str) -> bool:
    """Whether a record may be of several lines."""
    return source in ("records", "pods")


def line_of(source: str, number: int, filler: bytes) -> bytes:
    """A line of its own; records are of some lines, and what containers write is partial now and
    then.
    """
    line = b"%08d %s\n" % (number, filler)
    if source == "records":
        return line if number % 3 == 0 else b"\t" + line
    if source == "pods":
        stream, tag = (b"stdout", b"stderr")[number // 2 % 2], b"FFPFF"[number % 5 : number % 5 + 1]
        return b"2026-11-24T00:00:00.%09dZ %s %s %s" % (number, stream, tag, line)
    return line


def numbers_of(content: bytes) -> list[int]:
    """Of the lines in it; -1 for what no line begins like."""
    return [
        int(match[1]) if (match := _NUMBER.match(line)) else -1
        for line in content.split(b"\n")[:-1]
    ]


def is_torn(source: str, before: bytes, after: bytes) -> bool:
    """Whether a record that is in these lines goes on in those."""
    if source == "records":
        return after.startswith(b"\t")
    tags: dict[bytes, bytes] = dict(_STREAM_AND_TAG.findall(before))  # the last of each stream
    return b"P" in tags.values()


def settings(folder: str, sources: Sequence[str] = SOURCES) -> str:
    """As the configuration has them."""
    paths = {
        "app": "logs/app.log*",
        "link": "current.log",
        "records": "records/java.log*",
        "pods": "pods/*/*/*.log*",
    }
    more = {
        "records": f"record_start = '^\\d{{8}} '\nflush_seconds = {FLUSH_S}",
        "pods": f'format = "cri"\nflush_seconds = {FLUSH_S}',
    }
    tables = (
        (
            f'[[tailer.sources]]\nname = "{name}"\npaths = '
            f'["{folder}/{paths[name]}"]\n{more.get(name, "")}'
        )
        for name in sources
    )
    return "\n".join(tables)
