"""Publishes a written hour: the attempt folder gets exactly the manifest's files and a finished `_SUCCESS`, is read back, and
one rename that refuses an existing target makes it the bucket. Where the target stands already, its marker is the truth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import version
from typing import Final

from etl.buckets import NotClosed, read_marker, standing_manifest
from etl.closing.containers import WrittenFile, WrittenHour
from etl.ledger.rows import Frontier, HourBook, Seal, StagedGroup
from etl.storage import AlreadyExists, Storage
from hourmark.errors import Finding
from hourmark.hours import Hour
from hourmark.manifest import MARKER, Book, BucketFile, Evidence, Grade, Manifest, Offsets, Previous

ATTEMPTS_FOLDER: Final = "_attempts"


def manifest_of(
    frontier: Frontier,
    written: WrittenHour,
    *,
    listed: Collection[StagedGroup],
    fingerprints: Mapping[int, str],
    previous: Previous | None,
    ledger: tuple[str, int],
    attempt: str,
    now_ms: int,
) -> Manifest:
    """What `_SUCCESS` will say; pure."""
    seal, hour = frontier.seal, frontier.hour
    assert seal is not None, "only a sealed hour is written"
    ordered = _ordered(written.files)
    names = _names(ordered)
    late = Counter[str]()
    for w in ordered:
        for start_s, rows in w.hours.items() if w.late else ():
            late[str(Hour(start_s, hour.length_s))] += rows.events
    events = sum(w.records for w in ordered)
    return Manifest(
        type=frontier.event_type,
        hour=str(hour),
        bucket_seconds=hour.length_s,
        previous=previous,
        grade=Grade(seal.grade),
        evidence=Evidence(
            method=seal.method,
            cut_at_ms=seal.cut_at_ms,
            audit_records=seal.audit_records,
            promised=seal.promised,
            audit_next={"0": seal.audit_next},
            excused=list(seal.excused),
        ),
        files=[
            BucketFile(
                name=names[w.path], records=w.records, bytes=w.bytes, blake2b=w.blake2b, schema_id=w.schema_id,
                schema_fingerprint=fingerprints[w.schema_id],
            )
            for w in ordered
        ],
        events=events,
        late=dict(sorted(late.items())),
        books=_books(seal, hour, listed, ordered),
        duplicates_removed=sum(rows.events for rows in written.duplicates.values()),
        surplus=seal.surplus,
        id_sum=f"{sum(w.id_sum for w in ordered) % (1 << 64):016x}",
        offsets=[Offsets(topic=p.topic, topic_id=p.topic_id, partition=p.partition, next=p.next_offset) for p in seal.offsets],
        ledger=ledger[0],
        ledger_commit=ledger[1],
        attempt=attempt,
        closed_at_ms=now_ms,
        software=f"hourmark {version('hourmark')}",
    )  # fmt: skip


def previous_of(storage: Storage, frontier: Frontier) -> Previous | None:
    """What the frontier's manifest says of the marker before it, as that stands; a Finding where it is gone."""
    if frontier.hour == frontier.first_hour:
        return None
    before = frontier.hour.before()
    try:
        return Previous.of(str(before), read_marker(storage, frontier.event_type, before))
    except NotClosed as error:
        raise Finding(f"{frontier.event_type} {frontier.hour} follows a bucket that is gone: {error}; bring it back") from error


def _books(seal: Seal, hour: Hour, listed: Collection[StagedGroup], written: Sequence[WrittenFile]) -> dict[str, Book]:
    rows, events = Counter[int](), Counter[int]()
    for g in listed:
        rows[g.hour_s] += g.rows
    for w in written:
        events.update({start_s: of.events for start_s, of in w.hours.items()})
    sealed = {b.hour_s: b for b in seal.books}
    nothing = HourBook(0, 0, 0)
    return {
        str(Hour(start_s, hour.length_s)): Book(
            rows=rows[start_s], events=events[start_s], promised=sealed.get(start_s, nothing).promised,
            surplus=sealed.get(start_s, nothing).surplus,
        )
        for start_s in sorted(rows.keys() | sealed.keys())
    }  # fmt: skip


def publish(storage: Storage, frontier: Frontier, written: WrittenHour, manifest: Manifest) -> Manifest:
    """Make it the bucket, and return the manifest that stands there: this one, or that of whoever was first.

    Finding, and nothing published, if what was written does not read back as the manifest says: files' contents were read back
    by the tasks that wrote them, their names and sizes and the manifest are here.
    """
    if written.trouble:
        raise Finding(written.trouble)
    attempt = f"{ATTEMPTS_FOLDER}/{manifest.attempt}/{frontier.event_type}"
    target = frontier.hour.bucket_path(frontier.event_type)
    names = _names(_ordered(written.files))
    storage.make_folder(attempt)
    for path, name in names.items():
        storage.rename_new(path, f"{attempt}/{name}")
    storage.write_new(f"{attempt}/{MARKER}", manifest.encode())
    _read_back(storage, attempt, manifest)
    try:
        storage.rename_new(attempt, target)
    except AlreadyExists:
        standing = standing_manifest(storage, frontier.event_type, frontier.hour)
        if standing is None:
            raise Finding(
                f"{storage.url(target)} stands, but without a {MARKER}: not made by Hourmark. Move it away, and closing goes on"
            ) from None
        return standing
    return manifest


def _ordered(written: Sequence[WrittenFile]) -> list[WrittenFile]:
    return sorted(written, key=lambda w: (w.late, w.schema_id, w.path))


def _names(ordered: Sequence[WrittenFile]) -> dict[str, str]:
    """Paths of written files → their names in the bucket."""
    names: dict[str, str] = {}
    counts = {"part": 0, "late": 0}
    for w in ordered:
        kind = "late" if w.late else "part"
        names[w.path] = f"{kind}-{counts[kind]:05d}.avro"
        counts[kind] += 1
    return names


def _read_back(storage: Storage, attempt: str, manifest: Manifest) -> None:
    found = {entry.name: entry.size for entry in storage.list(attempt)}
    wanted = {f.name: f.bytes for f in manifest.files} | {MARKER: len(manifest.encode())}
    if found != wanted:
        raise Finding(f"{storage.url(attempt)} holds {found}, the manifest says {wanted}; the attempt is not published")
    if Manifest.decode(storage.read(f"{attempt}/{MARKER}")) != manifest:
        raise Finding(f"{storage.url(attempt)}/{MARKER} does not read back as written; the attempt is not published")
