"""Saves what scans observed of files, so that a restart does not forget losses or unread content.

The head of a file, which identifies it after it was compressed, is saved with its first ranges
instead, because the file may be read to its end before the scan that found it has finished.
"""

from __future__ import annotations

from collections.abc import Iterable

from hourmark_producer.checkpoint import database as changes
from hourmark_producer.checkpoint.database import Change, Checkpoint
from hourmark_producer.files.fingerprints import HEAD_BYTES, TruncationVerdict, assess_truncations
from hourmark_producer.files.tracked_file import FileAccount, FilePosition, TrackedFile


def save_changed_accounts(checkpoint: Checkpoint, files: Iterable[TrackedFile]) -> None:
    """Save what scans observed of changed files, so that a restart does not forget lost bytes.

    These observations are the account of a file: the largest size of its content and each
    truncation, since a sender thread last prepared to read from it. All accounts are saved in one
    transaction. A file is skipped if its account contains nothing that a restart would lose, if the
    file no longer exists, or if it is a compressed file whose content may be unread.

    Args:
        checkpoint: Database in which the accounts are saved.
        files: Tracked files. The attribute `saved` of each saved file is set to its account.

    Raises:
        CheckpointFailed: Nothing was saved. Call the function again at the next scan.
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

    The first bytes identify the content of a file when the tailer compares it with other files. The
    statement takes effect when it is passed to `Checkpoint.commit`. It changes nothing if more
    first bytes are already saved, if an observed truncation is saved for the file, or if the saved
    bytes belong to another generation (the content between two truncations).

    Args:
        file_id: Id of the file.
        position: Position of the file; its `head` holds the first bytes.

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
