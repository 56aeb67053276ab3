"""What looks found of files, written down: a stop must not forget what is known, and unread or not
yet settled.

Nor what a file begins with, by which it is known once it is packed: that is written with its first
ranges, as it may be read to its end before the look that found it is over.
"""

from __future__ import annotations

from collections.abc import Iterable

from hourmark_producer.checkpoint import database as changes
from hourmark_producer.checkpoint.database import Change, Checkpoint
from hourmark_producer.files.fingerprints import HEAD_BYTES, Verdict, judge
from hourmark_producer.files.tracked_file import Account, Position, TrackedFile


def keep_accounts(checkpoint: Checkpoint, files: Iterable[TrackedFile]) -> None:
    """Of those that have changed since. CheckpointFailed."""
    pending, saved = list[Change](), dict[TrackedFile, Account]()
    for file in files:
        progress = file.progress  # one consistent moment
        account = file.observed.of(progress)
        unread = (
            account.shrinks
            or account.high > progress.position.offset
            or len(account.head) < HEAD_BYTES
        )
        if unread and account != file.saved and not (file.is_gone or file.suspected):
            pending.append(changes.save_account(file.file_id, progress.position, account))
            if (
                account.shrinks
                and judge(progress.position.offset, account.shrinks).verdict is Verdict.REPLACED
            ):
                pending.append(
                    changes.note_void(file.file_id, progress.position)
                )  # the account has its new head
            saved[file] = account
    if pending:
        checkpoint.commit(pending)
    for file, account in saved.items():
        file.saved = account


def keep_head(file_id: str, position: Position) -> Change:
    """What it begins with; nothing of what a look found meanwhile is put over."""
    sql = (
        "INSERT INTO accounts VALUES (?,?,?,?,?,'[]',?) ON CONFLICT (file_id) DO UPDATE SET "
        "head=excluded.head "
        "WHERE accounts.generation = excluded.generation AND accounts.shrinks = '[]' "
        "AND length(accounts.head) < length(excluded.head)"
    )
    row = (
        file_id,
        position.generation,
        position.settled,
        position.doubted,
        position.size_seen,
        position.head,
    )
    return sql, row
