"""Chooses the codec of new buckets when a closer starts.

Without the setting `etl.avro_codec`, a site continues with the codec that its buckets have. A site
that was upgraded from version 0.3.0 therefore writes buckets that version 0.3.0 can read, until an
operator decides otherwise. The choice depends only on closed buckets, so it is the same after the
ledger was rebuilt from storage.

Buckets without files have no codec and are ignored: after an hour without events, a new site would
otherwise seem to use `zstandard`.
"""

from __future__ import annotations

import logging
from typing import Final

from hourmark.config.groups import AvroCodec
from hourmark_etl.ledger.bucket_rows import read_newest_manifest_with_files
from hourmark_etl.ledger.database import Database

_DEFAULT: Final[AvroCodec] = "deflate"
_LOG: Final = logging.getLogger(__name__)


def choose_codec(database: Database, configured: AvroCodec | None) -> AvroCodec:
    """Return the codec for the files of new buckets, and log it with the reason.

    Args:
        database: The ledger (the ETL's state database).
        configured: Value of the setting `etl.avro_codec`.

    Returns:
        The configured codec. If none is configured, the codec of the newest closed bucket that has
        files; `deflate` if no closed bucket has files.

    Raises:
        Unavailable: The ledger does not respond.
    """
    codec, reason = _choose(database, configured)
    _LOG.info("new buckets have avro_codec=%s: %s", codec, reason)
    return codec


def _choose(database: Database, configured: AvroCodec | None) -> tuple[AvroCodec, str]:
    if configured is not None:
        return configured, "it is set as etl.avro_codec"
    with database.reading() as connection:
        manifest = read_newest_manifest_with_files(connection)
    codec = None if manifest is None else manifest.files_codec
    if manifest is None or codec is None:
        return _DEFAULT, "etl.avro_codec is not set, and no closed bucket has files"
    return codec, (
        f"etl.avro_codec is not set, and {manifest.type} {manifest.hour}, the newest bucket with "
        "files, has this codec"
    )
