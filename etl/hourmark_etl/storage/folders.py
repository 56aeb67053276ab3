"""Names of folders in `storage.root` that do not belong to an event type.

Readers of buckets ignore names that begin with `_`.
"""

from __future__ import annotations

from typing import Final

STAGING_FOLDER: Final = "_staging"
UNAUDITED_FOLDER: Final = "_unaudited"
INDEX_FOLDER: Final = "_index"
ATTEMPTS_FOLDER: Final = "_attempts"
LEDGER_FOLDER: Final = "_ledger"
COPIES_FOLDER: Final = "_copies"
