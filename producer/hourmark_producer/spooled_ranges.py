"""The checkpoint's table `ranges`: what is on its way, with bodies that are in a row or beside the database.

`meta.format` says what a version needs to be able to go on with it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hourmark_producer.bodies import BESIDE_BYTES, Bodies, Extent
from hourmark_producer.rows import fields_of

if TYPE_CHECKING:
    from hourmark_producer.checkpoint import Change
    from hourmark_producer.files import Outgoing

FORMAT: Final = 1
SEVERAL: Final = 2  # of some file more than one range is on its way, which a version of format 1 would not send
BESIDE: Final = 3  # some bodies lie beside the database, where a version of another format would not look
_SPOOL: Final = "INSERT INTO ranges VALUES (?,?,?,?)"
_UNSPOOL: Final = "DELETE FROM ranges WHERE sequence=?"
_NOTE_FORMAT: Final = "UPDATE meta SET format=? WHERE format<?"
_IS_SEVERAL: Final = "SELECT 1 FROM ranges GROUP BY file_id HAVING count(*) > 1"
_BESIDE: Final = "SELECT sequence, body FROM ranges WHERE typeof(body)='text'"


def spool(outgoing: Outgoing, body: bytes) -> Change:
    """A range on its way, with its compressed body."""
    fields = fields_of(outgoing.range)
    return _SPOOL, (outgoing.sequence, outgoing.range.file_id, json.dumps(fields), body)


def unspool(sequence: int) -> Change:
    """A range that was acknowledged."""
    return _UNSPOOL, (sequence,)


def note_several() -> Change:
    """Of a file more than one range is about to be on its way."""
    return _NOTE_FORMAT, (SEVERAL, SEVERAL)


def bodies_of(db: sqlite3.Connection, path: Path) -> Bodies:
    """Those beside the database. OSError, ValueError, BodyDamaged: not all of them are there as they were written."""
    taken = {sequence: Extent.read(text) for sequence, text in db.execute(_BESIDE)}
    lengths = "SELECT sequence, json_extract(range, '$.end') - json_extract(range, '$.start') FROM ranges"
    bodies = Bodies(path, taken)
    try:
        bodies.check(dict(db.execute(lengths).fetchall()))
    except BaseException:
        bodies.close()
        raise
    return bodies


def placed(bodies: Bodies, changes: Sequence[Change]) -> list[Change]:
    """The same changes, with large bodies beside the database by now. OSError."""
    extents = bodies.put({row[0]: row[3] for sql, row in changes if sql is _SPOOL and len(row[3]) >= BESIDE_BYTES})
    if not extents:
        return list(changes)
    return [
        (_NOTE_FORMAT, (BESIDE, BESIDE)),
        *((sql, (*row[:3], str(extents[row[0]]))) if sql is _SPOOL and row[0] in extents else (sql, row) for sql, row in changes),
    ]


def settled(bodies: Bodies, changes: Sequence[Change], *, done: bool) -> None:
    """`done`: they are durable; else none of them is."""
    if done:
        bodies.settled([row[0] for sql, row in changes if sql is _UNSPOOL])
    else:
        bodies.doubt([row[0] for sql, row in changes if sql is _SPOOL])


def body_of(db: sqlite3.Connection, bodies: Bodies, sequence: int) -> bytes:
    """A spooled one, compressed. sqlite3.Error, OSError, BodyDamaged."""
    (body,) = db.execute("SELECT body FROM ranges WHERE sequence=?", (sequence,)).fetchone()
    return bodies.get(Extent.read(body)) if isinstance(body, str) else bytes(body)


def bring_in(db: sqlite3.Connection, bodies: Bodies) -> None:
    """All into the database, which is whole alone then, and of the least format. sqlite3.Error, OSError, BodyDamaged: not."""
    db.execute("BEGIN IMMEDIATE")
    try:
        for sequence, text in db.execute(_BESIDE).fetchall():
            db.execute("UPDATE ranges SET body=? WHERE sequence=?", (bodies.get(Extent.read(text)), sequence))
        db.execute(f"UPDATE meta SET format=CASE WHEN EXISTS ({_IS_SEVERAL}) THEN ? ELSE ? END", (SEVERAL, FORMAT))  # noqa: S608
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def allow_several(db: sqlite3.Connection) -> None:
    """Ranges of a file: a version before this one allowed a single one."""
    (made,) = db.execute("SELECT sql FROM sqlite_master WHERE type='table' AND name='ranges'").fetchone()
    if "UNIQUE" not in made:
        return
    columns = "(sequence INTEGER PRIMARY KEY, file_id TEXT NOT NULL, range TEXT NOT NULL, body BLOB NOT NULL)"
    db.execute("BEGIN IMMEDIATE")
    try:
        db.execute(f"CREATE TABLE ranges_made_anew {columns}")
        db.execute("INSERT INTO ranges_made_anew SELECT sequence, file_id, range, body FROM ranges")
        db.execute("DROP TABLE ranges")  # with its triggers, and without firing them: `books` makes them again
        db.execute("ALTER TABLE ranges_made_anew RENAME TO ranges")
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
