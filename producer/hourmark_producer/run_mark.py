"""Whether a run of the tailer is under way, marked in its checkpoint so that a lost write-ahead log is noticed.

A run's newest commits are in the log alone. Without it the database is an older state, whole and in order, and going on from
there would send other ranges under old places. So the database itself says LOGGED, "there is more in the log", while the
log's first commit says ALL. Who opens it and reads LOGGED, where there was no log, knows that it was lost. Where another
program closed the database in order, and so moved the log into it, ALL is read: nothing is lost.
"""

from __future__ import annotations

import sqlite3
from typing import Final

SCHEMA: Final = "CREATE TABLE IF NOT EXISTS run (under_way INTEGER NOT NULL);"
_ENDED, _LOGGED, _ALL = 0, 1, 2


def log_was_lost(db: sqlite3.Connection, *, log_is_there: bool) -> bool:
    """`log_is_there`: before this connection was made, which makes one."""
    (mark,) = db.execute("SELECT coalesce(max(under_way), 0) FROM run").fetchone()
    return mark == _LOGGED and not log_is_there


def begin_log(db: sqlite3.Connection) -> None:
    """Move the log into the database, and begin a new one. sqlite3.Error where the disk is full: all is as it was then."""
    _put(db, _LOGGED)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    _put(db, _ALL)


def end(db: sqlite3.Connection) -> None:
    """The run ends in order: closing the database moves the log into it."""
    _put(db, _ENDED)


def _put(db: sqlite3.Connection, mark: int) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        db.execute("DELETE FROM run")
        db.execute("INSERT INTO run VALUES (?)", (mark,))
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
