"""The batch file: what one batch commits, written beside its files before the commit, so that a lost ledger can be rebuilt.

`<batch folder>/batch.json.zst`, zstandard of JSON (`zstdcat` shows it). Written once, after all files of the batch and before its
ledger transaction; so it may speak of a batch that was never committed, and whoever rebuilds must tell (`rebuild`). What it
rests on:

- `starts` are the ledger's positions when the batch was planned, `ends` how far its commit moves them. They name every partition
  of which the batch holds rows; others of the shard may be named too, moved or not.
- (epoch, sequence) orders all batches of a ledger: the lease's epoch (epochs grow over all leases, see `Database.acquire`), then
  a number that grows with each batch planned under it, those given up included. Positions are read after the lease was taken.
- Host reports are not in it: they are read again from their topic. So a batch without files needs no batch file.
- It is deleted with the last file of its folder, and not before.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import zstandard

from etl.ledger.rows import AuditGroup, Position, Span, StagedBatch, StagedFile, StagedGroup
from etl.storage import Storage

NAME: Final = "batch.json.zst"
FORMAT: Final = 1
_BYTES_MAX: Final = 1 << 30  # of one batch file, decompressed: far above a thousand types of two hours
_Row = TypeVar("_Row")


@dataclasses.dataclass(frozen=True)
class BatchFile:
    """A batch with what orders it among the others of its ledger. Its `reports` are not kept."""

    ledger: str  # UUID
    epoch: int
    sequence: int
    batch: StagedBatch

    @property
    def order(self) -> tuple[int, int]:
        """Of two batches, the one planned later has the greater."""
        return self.epoch, self.sequence

    def encode(self) -> bytes:
        """The file's content."""
        batch = self.batch
        content = {
            "format": FORMAT,
            "ledger": self.ledger,
            "epoch": self.epoch,
            "sequence": self.sequence,
            "folder": batch.folder,
            "starts": _table(Position, batch.starts),
            "ends": _table(Position, batch.ends),
            "files": [{"path": f.path, "kind": f.kind, "rows": f.rows, "spans": _table(Span, f.spans)} for f in batch.files],
            "groups": _table(StagedGroup, batch.groups),
            "audit_groups": _table(AuditGroup, batch.audit_groups),
        }
        return zstandard.compress(json.dumps(content, default=bytes.hex).encode())

    @classmethod
    def decode(cls, content: bytes) -> BatchFile:
        """The inverse; ValueError says why it is none, or none of this version."""
        try:
            found: dict[str, Any] = json.loads(zstandard.decompress(content, max_output_size=_BYTES_MAX))
            if found["format"] != FORMAT:
                raise ValueError(f"its format is {found['format']!r}, this version reads {FORMAT}")
            batch = StagedBatch(
                folder=found["folder"],
                starts=_rows(Position, found["starts"]),
                ends=_rows(Position, found["ends"]),
                files=tuple(StagedFile(f["path"], f["kind"], f["rows"], _rows(Span, f["spans"])) for f in found["files"]),
                groups=_rows(StagedGroup, found["groups"]),
                audit_groups=_rows(AuditGroup, found["audit_groups"]),
                reports=(),
            )
            return cls(found["ledger"], found["epoch"], found["sequence"], batch)
        except (zstandard.ZstdError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a batch file: {error!r}") from error


def write_batch_file(storage: Storage, file: BatchFile) -> None:
    """Write it into the batch's folder. AlreadyExists if the folder has one: a folder's name is never used again."""
    storage.write_new(f"{file.batch.folder}/{NAME}", file.encode())


def read_batch_file(storage: Storage, folder: str) -> BatchFile:
    """The batch file of this folder. NotFound, or ValueError, naming the folder, if it is damaged or of another folder."""
    path = f"{folder}/{NAME}"
    try:
        file = BatchFile.decode(storage.read(path))
        if file.batch.folder != folder:
            raise ValueError(f"it speaks of {file.batch.folder}")
    except ValueError as error:
        raise ValueError(f"{storage.url(path)}: {error}") from error
    return file


def _table(kind: type, rows: Sequence[Any]) -> dict[str, Any]:
    """Rows without the names of their fields in each: there may be thousands."""
    names = [f.name for f in dataclasses.fields(kind)]
    return {"columns": names, "rows": [[getattr(row, name) for name in names] for row in rows]}


def _rows(kind: type[_Row], table: dict[str, Any]) -> tuple[_Row, ...]:
    """The inverse of `_table`. TypeError where the columns are not its fields; one with a default may be missing."""
    fields = {f.name: str(f.type) for f in dataclasses.fields(kind)}  # type: ignore[arg-type]  # always a dataclass
    read = [_READ.get(fields.get(name, ""), _same) for name in table["columns"]]
    return tuple(
        kind(**{name: back(value) for name, back, value in zip(table["columns"], read, row, strict=True)})
        for row in table["rows"]
    )


def _same(value: Any) -> Any:
    return value


_READ: Final[dict[str, Callable[[Any], Any]]] = {
    "bytes": bytes.fromhex,
    "tuple[int, ...]": tuple,
}  # by annotation; all others are JSON's own types
