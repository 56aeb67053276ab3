"""Whether the buckets on storage are this ledger's, and this ledger the newest: asked at the start and before anything is listed.

Going on with an older copy would list events for buckets that are published already, and so lose them; going on with a new,
empty ledger would write every event that Kafka still holds a second time. So both stop.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from etl.buckets import any_marker
from etl.errors import ForeignLedger
from etl.ledger.rows import Frontier, Seal
from etl.storage import Storage
from hourmark.manifest import MARKER, Manifest

_HELP = (
    "Restore the newest copy of the ledger; or, where this is a new installation, give it a root of its own (storage.root). "
    "Nothing was changed"
)


def refuse_foreign_root(storage: Storage, frontiers: Iterable[Frontier], closed_types: Collection[str]) -> None:
    """ForeignLedger if a type has buckets on storage, and this ledger has closed none of it and sealed nothing.

    Only markers tell: an administrator may make folders, with rights and quota, before the first bucket.
    """
    for f in frontiers:
        if f.event_type not in closed_types and f.seal is None and (standing := any_marker(storage, f.event_type)):
            raise ForeignLedger(f"{storage.url(standing)} stands, but this ledger has closed nothing of {f.event_type}. {_HELP}")


def refuse_published(storage: Storage, opened: Collection[Frontier]) -> None:
    """ForeignLedger if the bucket of an open hour stands already: only a sealed hour can have been published."""
    for f in opened:
        path = f"{f.hour.bucket_path(f.event_type)}/{MARKER}"
        if storage.exists(path):
            raise ForeignLedger(f"{storage.url(path)} stands, but the ledger has not closed {f.event_type} {f.hour}. {_HELP}")


def refuse_other_seal(manifest: Manifest, seal: Seal, ledger_id: str) -> None:
    """ForeignLedger if a standing marker does not say what this ledger sealed."""
    offsets = {(o.topic_id, o.partition): o.next for o in manifest.offsets}
    sealed = {(p.topic_id, p.partition): p.next_offset for p in seal.offsets}
    if manifest.ledger != ledger_id or offsets != sealed or set(manifest.evidence.audit_next.values()) != {seal.audit_next}:
        raise ForeignLedger(
            f"{manifest.type} {manifest.hour} was published by ledger {manifest.ledger} (commit {manifest.ledger_commit}) with "
            f"other contents than this ledger {ledger_id} sealed. {_HELP}"
        )
