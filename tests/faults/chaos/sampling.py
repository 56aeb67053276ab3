"""What of a run is judged again and again: its smallest source, read once."""

from __future__ import annotations

import fnmatch
import hashlib
import io
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

from tests.faults.chaos.evidence import Evidence

from hourmark_verify.judge.webhdfs import DownloadedFile, HdfsEntry, WebHdfsReader, hdfs_path


class CachedHdfs(WebHdfsReader):
    """Reads as the other does, each folder and file once, but for some files, which hold something
    else.

    The driver has ended, so nothing changes while all is judged again and again. `only`: of one
    folder, these entries alone.
    """

    def __init__(
        self,
        hdfs: WebHdfsReader,
        instead: Mapping[str, bytes] | None = None,
        only: tuple[str, Collection[str]] | None = None,
    ) -> None:
        self._hdfs, self._only = hdfs, only
        self._lists: dict[str, list[HdfsEntry]] = {}
        self._contents = dict(instead or {})

    def close(self) -> None:
        """Nothing: the other is closed by who opened it."""

    def list(self, folder: str) -> list[HdfsEntry]:
        if folder not in self._lists:
            entries = self._hdfs.list(folder)
            if self._only is not None and folder == self._only[0]:
                entries = [entry for entry in entries if entry.name in self._only[1]]
            self._lists[folder] = entries
        return self._lists[folder]

    def open(self, file: str) -> DownloadedFile:
        if file not in self._contents:
            with self._hdfs.open(file).content as opened:
                self._contents[file] = opened.read()
        content = self._contents[file]
        return DownloadedFile(
            io.BytesIO(content), len(content), hashlib.blake2b(content, digest_size=16).hexdigest()
        )


def smallest_sample(evidence: Evidence) -> Evidence:
    """What is judged again and again: of all sources the smallest, with the types that it may
    carry, and those of the API.
    """
    told, root = evidence.told, hdfs_path(evidence.told.root)
    if len({file.source for file in told.files}) < 2 or told.written is None:
        return replace(evidence, hdfs=CachedHdfs(evidence.hdfs))
    bytes_of = Counter[str | None]()
    for file in told.files:
        bytes_of[file.source] += sum(
            of.bytes for of in told.written if fnmatch.fnmatch(of.path, file.path)
        )
    smallest = min(bytes_of, key=bytes_of.__getitem__)
    files = [file for file in told.files if file.source == smallest]
    written = [
        of for of in told.written if any(fnmatch.fnmatch(of.path, file.path) for file in files)
    ]
    types = {*evidence.api_types}.union(*(file.possible_types(told.types) for file in files))
    changed = {
        "files": files,
        "written": written,
        "destroyed": [row for row in told.destroyed if row.type in types],
    }
    return replace(
        evidence,
        told=told.model_copy(update=changed),
        hdfs=CachedHdfs(evidence.hdfs, only=(root, types)),
        kept={
            path: entries
            for path, entries in evidence.kept.items()
            if path.partition("/")[0] in types
        },
    )
