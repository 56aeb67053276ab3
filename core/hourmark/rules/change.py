"""Changes from one rules revision to the next. All functions are pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hourmark.config.groups import ParsingSettings
from hourmark.errors import UsageError
from hourmark.rules.event_types import Declarations
from hourmark.rules.revision import PARSER, Rules, RulesBook, TypeVersion

RECORD_OVERHEAD: Final = 1024  # bytes of a record in Kafka's batch, rounded up generously


def check_change(
    latest: Rules | None, declared: Declarations, bucket_seconds: int, *, may_remove: bool
) -> None:
    """Check that new declarations are a permitted change to the current rules revision.

    A rules revision is one numbered version of the declared event types, sources and limits. The
    bucket length must stay the same, because closed buckets never change. Types and sources may be
    removed only with `may_remove`, because their lines then become dead letters (lines that are
    stored, but not as events).

    Args:
        latest: The current revision. None if nothing has been published yet, in which case every
            declaration is permitted.
        declared: The new declarations.
        bucket_seconds: Configured bucket length.
        may_remove: Whether types and sources may be removed.

    Raises:
        UsageError: The bucket length differs, or a type or source is missing and `may_remove` is
            false.
    """
    if latest is None:
        return
    if latest.parsing.bucket_seconds != bucket_seconds:
        raise UsageError(
            f"parsing.bucket_seconds is {bucket_seconds}, but types were applied with "
            f"{latest.parsing.bucket_seconds}; the bucket length of a storage root cannot be "
            "changed: restore the previous value, or use a new root and a new cluster"
        )
    missing = (set(latest.types) - {t.name for t in declared.types}) | (
        set(latest.sources) - {s.name for s in declared.sources}
    )
    if missing and not may_remove:
        raise UsageError(
            f"{', '.join(sorted(missing))}: in force, but not declared here; their new lines "
            "would become dead letters. Declare them, or confirm their removal with --remove"
        )


def next_rules(
    book: RulesBook, declared: Declarations, schema_ids: Mapping[str, int], bucket_seconds: int
) -> Rules:
    """Create the rules revision that results from new declarations.

    A rules revision is one numbered version of the declared event types, sources and limits. The
    new revision is neither stored nor published.

    Args:
        book: All revisions so far.
        declared: The new declarations.
        schema_ids: Maps the name of each declared type to its schema id in the registry.
        bucket_seconds: Length of a bucket.

    Returns:
        A new revision with the next sequence number, or the latest revision if the declarations
        change nothing.

    Raises:
        KeyError: `schema_ids` lacks a declared type.
    """
    latest, sequence = book.latest, book.next_sequence
    versions = {t.name: TypeVersion(t, schema_ids[t.name]) for t in declared.types}
    parsing = ParsingSettings(bucket_seconds=bucket_seconds, **declared.limits.model_dump())
    proposed = Rules(
        sequence=sequence,
        types=versions,
        sources={s.name: s for s in declared.sources},
        parsing=parsing,
        parser=PARSER,
    )
    return latest if latest is not None and proposed.same_content(latest) else proposed


def check_record_sizes(rules: Rules, bytes_max: int) -> None:
    """Check that each record of a rules revision is small enough for Kafka.

    A rules revision is one numbered version of the declared event types, sources and limits. Call
    this function before you store a revision in the ledger (the database of the ETL). Otherwise the
    ledger could contain a revision that can never be published.

    Args:
        rules: The revision.
        bytes_max: Maximum size of a record batch in bytes (`kafka.max_message_bytes`).

    Raises:
        UsageError: A record is too large. Declare fewer fields or types, or raise the limit.
    """
    for key, value in rules.records():
        if (size := len(key.encode()) + len(value.encode()) + RECORD_OVERHEAD) > bytes_max:
            raise UsageError(
                f"{key} has {size} bytes, but kafka.max_message_bytes is {bytes_max}: declare "
                "fewer fields or symbols in a type, or fewer types for one edge, or raise this "
                "setting and max.message.bytes of the topics"
            )


def describe_changes(before: Rules | None, after: Rules) -> str:
    """Describe the differences between two rules revisions for the user.

    A rules revision is one numbered version of the declared event types, sources and limits.

    Args:
        before: The earlier revision; None if there was none.
        after: The later revision.

    Returns:
        A comma-separated list of added, removed and changed types and sources, and of changed
        limits. `no change of declarations` if nothing changed.
    """
    changes = []
    for kind in ("types", "sources"):
        was: Mapping[str, object] = getattr(before, kind) if before is not None else {}
        now: Mapping[str, object] = getattr(after, kind)
        changes += [f"{kind[:-1]} {name} added" for name in sorted(now.keys() - was.keys())]
        changes += [f"{kind[:-1]} {name} removed" for name in sorted(was.keys() - now.keys())]
        changes += [
            f"{kind[:-1]} {name} changed"
            for name in sorted(now.keys() & was.keys())
            if now[name] != was[name]
        ]
    if before is not None and before.parsing != after.parsing:
        changes.append("limits changed")
    return ", ".join(changes) or "no change of declarations"
