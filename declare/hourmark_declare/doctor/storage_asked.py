"""Lists the root of staged files and buckets, asks the NameNode how it stands, and tries what
storage must refuse.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.request import ProxyHandler, build_opener

from hourmark.clock import SystemClock
from hourmark.config.loading import Config
from hourmark_declare.doctor.finding import Answer, finding, not_asked, well
from hourmark_declare.doctor.storage_judged import CHECK, namenode_judged
from hourmark_declare.doctor.storage_probed import FOLDER, probed
from hourmark_etl.storage import NotFound, StorageEntry, open_storage

_ENDED_MS: Final = 3_600_000  # a doctor ends within a minute
_JMX: Final = "/jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo"
_DIRECT: Final = build_opener(
    ProxyHandler({})
)  # as storage asks: a cluster's addresses are not the internet's


def ask(config: Config) -> Iterator[Answer]:
    """Whether the root can be listed; of HDFS, whether files can be written as configured."""
    storage = open_storage(config.storage)
    try:
        entries = storage.list("")
        names = [entry.name for entry in entries if not entry.name.startswith(FOLDER)]
        yield well(CHECK, "storage.root", f"{len(names)} names at {config.storage.root}")
        yield from _left_behind(entries, config.storage.root)
        if others := _owner_of(config.storage.root):
            yield not_asked(
                CHECK,
                "what it must refuse",
                f"the root is the user {others}'s: ask as that one, whose files must lie there",
            )
        else:
            yield from probed(storage)
    except NotFound:  # whoever writes first owns it
        yield well(
            CHECK, "storage.root", f"it answers; nothing was written yet at {config.storage.root}"
        )
    if config.storage.root.startswith("hdfs://"):
        bean = _namenode(config.storage.webhdfs.rstrip("/"))
        if bean is None:
            yield not_asked(
                CHECK, "NameNode", "storage.webhdfs has no /jmx that can be read: is it a gateway?"
            )
        else:
            yield from namenode_judged(bean, config.storage.replication)


def _left_behind(entries: Iterable[StorageEntry], root: str) -> Iterator[Answer]:
    """Folders of doctors that were killed, or took too long; younger ones may be at work."""
    until_ms = SystemClock().now_ms() - _ENDED_MS
    if old := [
        entry.name
        for entry in entries
        if entry.name.startswith(FOLDER) and entry.changed_ms < until_ms
    ]:
        yield finding(
            CHECK,
            "storage.root",
            f"a doctor that was ended left {', '.join(old)} behind",
            f"delete {', '.join(f'{root}/{name}' for name in old)}",
        )


def _owner_of(root: str) -> str | None:
    """Of a folder on a disk, where that is another user than this one."""
    if not root.startswith("file://"):
        return None
    owner = Path(root.removeprefix("file://")).stat().st_uid
    return None if owner == os.geteuid() else str(owner)


def _namenode(address: str) -> dict[str, Any] | None:
    try:
        with _DIRECT.open(address + _JMX, timeout=10) as answer:
            (bean,) = json.load(answer)["beans"]
            return dict(bean)
    except (OSError, ValueError, KeyError, TypeError):
        return None
