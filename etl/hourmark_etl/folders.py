"""Folders below `storage.root` that belong to no type. Readers pass over what begins with `_`."""

from __future__ import annotations

from typing import Final

STAGING_FOLDER: Final = "_staging"
UNAUDITED_FOLDER: Final = "_unaudited"
INDEX_FOLDER: Final = "_index"
ATTEMPTS_FOLDER: Final = "_attempts"
LEDGER_FOLDER: Final = "_ledger"
