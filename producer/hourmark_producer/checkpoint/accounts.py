"""Saves the observations of scans, so that losses and unread content are known after a restart.

The first bytes of a file identify it after it was compressed. They are saved with its first ranges
instead, because the file may be read to its end before the scan that found it has finished.
"""

from __future__ import annotations

from collections.abc import Iterable

from hourmark_producer.checkpoint import database as changes
from hourmark_producer.checkpoint.database import Change, Checkpoint
from hourmark_producer.files.fingerprints import HEAD_BYTES, TruncationVerdict, assess_truncations
from hourmark_producer.files.tracked_file import FileAccount, FilePosition, TrackedFile


def save_changed_accounts(checkpoint: Checkpoint, files: Iterable[TrackedFile]) -> None:
    """Save what scans observed of changed files, so that lost bytes are counted after a restart.

    The observations of a file are called its account: its largest size, its first bytes and its
    truncations since a sender thread last examined it. Only accounts that changed and that a later
    run needs are saved, all in one transaction.

    Args:
        checkpoint: Database in which the accounts are saved.
        files: Tracked files. If the account of a file is saved, it is also assigned to the
            attribute `saved` of the file.

    Raises:
        CheckpointFailed: Nothing was saved. Try again at the next scan.
    """
    pending, saved = list[Change](), dict[TrackedFile, FileAccount]()
    for file in files:
        progress = file.progress  # one consistent moment
        account = file.observed.account_since(progress)
        unread = (
            account.shrinks
            or account.high > progress.position.offset
            or len(account.head) < HEAD_BYTES
        )
        if unread and account != file.saved and not (file.is_gone or file.suspected):
            pending.append(changes.save_account(file.file_id, progress.position, account))
            if (
                account.shrinks
                and assess_truncations(progress.position.offset, account.shrinks).verdict
                is TruncationVerdict.REPLACED
            ):
                pending.append(
                    changes.save_pre_truncation_position_if_current(file.file_id, progress.position)
                )  # the account has its new head
            saved[file] = account
    if pending:
        checkpoint.commit(pending)
    for file, account in saved.items():
        file.saved = account


def save_first_bytes(file_id: str, position: FilePosition) -> Change:
    """Return the SQL statement that saves the first bytes of a file.

    The tailer uses these bytes to recognize the content in other files. Execute the statement with
    `Checkpoint.commit`. The statement never shortens or replaces bytes that are already saved: it
    has an effect only if fewer bytes of the same content are saved and no truncation is recorded.

    Args:
        file_id: Id of the file.
        position: Position of the file. Its `head` contains the first bytes.

    Returns:
        The statement and its parameters.
    """
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
