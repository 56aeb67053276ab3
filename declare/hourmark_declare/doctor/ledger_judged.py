"""From what PostgreSQL is set to, to findings. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from hourmark_declare.doctor.finding import Answer, finding, well

CHECK: Final = "ledger"
SETTINGS: Final[Mapping[str, tuple[str, str]]] = {
    # setting: (what comes of off, what to do)
    "fsync": ("what was committed is lost, or damaged, when its machine stops", "set fsync = on, then reload"),
    "full_page_writes": ("a page half written when its machine stops stays damaged", "set full_page_writes = on, then reload"),
    "synchronous_commit": ("the last commits are lost when its server stops", "set synchronous_commit = on, then reload"),
    "data_checksums": ("what its disk damages is read as if it were right", "stop the server, and run pg_checksums --enable"),
}


def postgresql_judged(settings: Mapping[str, str]) -> Iterator[Answer]:
    """Whether PostgreSQL keeps what it commits, and knows what its disk has damaged."""
    off = [name for name in SETTINGS if settings.get(name) == "off"]
    for name in off:
        comes_of, to_do = SETTINGS[name]
        yield finding(CHECK, "PostgreSQL", f"{name} = off: {comes_of}", to_do)
    if not off:
        yield well(CHECK, "PostgreSQL", f"{', '.join(SETTINGS)} are on")
