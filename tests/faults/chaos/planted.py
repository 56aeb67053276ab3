"""The judge, judged: each plants one fault into the evidence of a real run, and names the kind that
must be found.

The truth is changed (an event that nobody posted, a line with another byte), or what is read of
buckets (a flipped bit, an event that stands twice in a container whose marker agrees), or what was
seen. A checker that does not object is a violation itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import fastavro
from tests.faults.chaos.checkers import (
    Checker,
    Findings,
    check,
    closed_once_and_in_time,
    drained,
    each_line_once,
    goes_on,
    healed,
    nobody_ended,
)
from tests.faults.chaos.evidence import Evidence
from tests.faults.chaos.flows import Flow
from tests.faults.chaos.losses import destroyed
from tests.faults.chaos.sampling import CachedHdfs, smallest_sample

from hourmark.avro.framing import unix_ms
from hourmark_verify.judge.buckets import StoredBucket, closed_buckets
from hourmark_verify.judge.expectations import ApiEvent, Expectations
from hourmark_verify.judge.webhdfs import hdfs_path

Planting = Callable[[Evidence], AbstractContextManager[Evidence]]
NUMBER: Final = re.compile(
    rb'"number": [0-9]*([0-9])'
)  # its last digit: where the first becomes a zero, it is no number


@contextlib.contextmanager
def _truth(evidence: Evidence, **changed: Any) -> Iterator[Evidence]:
    told = evidence.told.model_dump()
    yield replace(evidence, told=Expectations.model_validate({**told, **changed}))


def an_event_that_nobody_posted(evidence: Evidence) -> AbstractContextManager[Evidence]:
    """One that is in a bucket is taken from the truth."""
    return _truth(evidence, api=evidence.told.api[1:])


def an_event_that_never_came(evidence: Evidence) -> AbstractContextManager[Evidence]:
    """One is added to the truth."""
    one = evidence.told.api[0]
    added = ApiEvent(**{**one.model_dump(), "event_id": f"{one.event_id}-and-another"})
    return _truth(evidence, api=[*evidence.told.api, added])


@contextlib.contextmanager
def a_line_with_another_byte(
    evidence: Evidence, number: re.Pattern[bytes] = NUMBER
) -> Iterator[Evidence]:
    """In the middle of a source file, for as long as it is judged.

    Its event is altered; or, where the file is the copy of one that was truncated, lost there, and
    an event of no file. `number` finds the byte that is changed, as its first group.
    """
    path = Path(
        max(
            (record.path for record in evidence.told.written or ()),
            key=lambda name: Path(name).stat().st_size,
        )
    )
    with path.open("r+b") as file:
        found = number.search(path.read_bytes(), path.stat().st_size // 2)
        assert found is not None, f"no number in the second half of {path}"
        at = found.start(1)
        file.seek(at)
        before = file.read(1)

        def put(byte: bytes) -> None:
            file.seek(at)
            file.write(byte)
            file.flush()

        put(bytes([before[0] ^ 1]))
        try:
            with _truth(evidence, written=None) as changed:
                yield changed
        finally:
            put(before)


def _full_bucket(evidence: Evidence) -> StoredBucket:
    """One that is proved, and whose first file has more events than one."""
    buckets = closed_buckets(evidence.hdfs, hdfs_path(evidence.told.root))
    return next(
        b
        for b in buckets
        if b.marker.grade == "proved" and b.marker.files and b.marker.files[0].records > 1
    )


def _bytes(evidence: Evidence, path: str) -> bytes:
    with evidence.hdfs.open(path).content as content:
        return content.read()


@contextlib.contextmanager
def a_flipped_bit_in_a_bucket(evidence: Evidence) -> Iterator[Evidence]:
    """In the middle of its first file."""
    bucket = _full_bucket(evidence)
    path = f"{hdfs_path(evidence.told.root)}/{bucket.path}/{bucket.marker.files[0].name}"
    content = bytearray(_bytes(evidence, path))
    content[len(content) // 2] ^= 1
    yield replace(evidence, hdfs=CachedHdfs(evidence.hdfs, {path: bytes(content)}))


@contextlib.contextmanager
def _container(evidence: Evidence, change: Callable[[list[Any]], list[Any]]) -> Iterator[Evidence]:
    """A container with other events, of which its marker says size, digest and count as they
    are.
    """
    bucket, root = _full_bucket(evidence), hdfs_path(evidence.told.root)
    file, marker = bucket.marker.files[0], f"{root}/{bucket.path}/_SUCCESS"
    path = f"{root}/{bucket.path}/{file.name}"
    reader: Any = fastavro.reader(io.BytesIO(_bytes(evidence, path)))
    schema, rows, changed = json.loads(reader.metadata["avro.schema"]), list(reader), io.BytesIO()
    fastavro.writer(changed, schema, change(rows), codec=reader.codec)
    content, said = changed.getvalue(), json.loads(_bytes(evidence, marker))
    more = len(change(rows)) - len(rows)
    digest = hashlib.blake2b(content, digest_size=16).hexdigest()
    said["files"][0] |= {"bytes": len(content), "blake2b": digest, "records": file.records + more}
    said["events"] += more
    said["software"] = said["software"].split(" blake2b=")[0][:40]
    instead = {path: content, marker: json.dumps(said).encode()}
    yield replace(evidence, hdfs=CachedHdfs(evidence.hdfs, instead))


def an_event_twice_in_a_bucket(evidence: Evidence) -> AbstractContextManager[Evidence]:
    """The last one."""
    return _container(evidence, lambda rows: [*rows, rows[-1]])


def an_event_less_in_a_bucket(evidence: Evidence) -> AbstractContextManager[Evidence]:
    """The last one."""
    return _container(evidence, lambda rows: rows[:-1])


def an_event_with_another_value_in_a_bucket(evidence: Evidence) -> AbstractContextManager[Evidence]:
    """In the last field of the last one."""

    def other(row: Any) -> Any:
        name, value = list(row.items())[-1]
        return {**row, name: value + (1 if isinstance(value, int) else value[:1])}

    return _container(evidence, lambda rows: [*rows[:-1], other(rows[-1])])


@contextlib.contextmanager
def a_destroyed_event_that_a_proof_is_without(evidence: Evidence) -> Iterator[Evidence]:
    """The last one; it is said to have been destroyed long before, so nobody misses it, and its
    bucket is proved all the same.
    """
    taken: list[Any] = []

    def without(rows: list[Any]) -> list[Any]:
        taken[:] = rows[-1:]
        return rows[:-1]

    with _container(evidence, without) as missing:
        (row,) = taken
        told = destroyed(
            _full_bucket(evidence).type,
            {**row, "event_time": unix_ms(row["event_time"])},
            written_ms=0,
        )
        with _truth(missing, destroyed=[*evidence.told.destroyed, told]) as changed:
            yield changed


@contextlib.contextmanager
def a_bucket_that_was_replaced(evidence: Evidence) -> Iterator[Evidence]:
    """Its folder was another when it was first looked into."""
    path, entries = next(iter(evidence.kept.items()))
    other = {name: entry._replace(id=entry.id + 1) for name, entry in entries.items()}
    yield replace(evidence, kept={**evidence.kept, path: other})


@contextlib.contextmanager
def a_bucket_that_stood_early(evidence: Evidence) -> Iterator[Evidence]:
    """It was seen a second before its end."""
    of = next(iter(evidence.first_seen))
    yield replace(evidence, first_seen={**evidence.first_seen, of: of[1] - 1000})


@contextlib.contextmanager
def a_line_that_came_too_late(evidence: Evidence) -> Iterator[Evidence]:
    """Of the lines in files of late ones none was written late."""
    yield replace(evidence, may_be_late=-1)


@contextlib.contextmanager
def a_flow_that_stood(evidence: Evidence) -> Iterator[Evidence]:
    """Mirror and API did not move, under a fault that lets all go on."""
    injected = [replace(of, goes_on=frozenset(Flow)) for of in evidence.injected]
    yield replace(
        evidence,
        injected=injected,
        moved={**evidence.moved, Flow.MIRROR: (), Flow.API: ()},
        watched=frozenset(Flow),
    )


@contextlib.contextmanager
def a_fault_that_never_healed(evidence: Evidence) -> Iterator[Evidence]:
    """Nothing was drained after it."""
    yield replace(evidence, injected=[replace(of, recovered_s=None) for of in evidence.injected])


@contextlib.contextmanager
def a_fault_that_failed(evidence: Evidence) -> Iterator[Evidence]:
    """What it hit did not do as it must."""
    yield replace(
        evidence,
        injected=[
            *evidence.injected[:-1],
            replace(evidence.injected[-1], failed="planted: it did not end"),
        ],
    )


@contextlib.contextmanager
def a_process_that_ended(evidence: Evidence) -> Iterator[Evidence]:
    """By itself."""
    yield replace(evidence, ended=[*evidence.ended, "planted: it ended"])


# By which checker it is found, of one of which kinds, how often; None: once or more.
PLANTED: Final[Mapping[Planting, tuple[Checker, tuple[str, ...], int | None]]] = {
    an_event_that_nobody_posted: (each_line_once, ("phantom",), 1),
    an_event_that_never_came: (each_line_once, ("lost",), 1),
    a_line_with_another_byte: (each_line_once, ("altered", "lost"), None),
    a_flipped_bit_in_a_bucket: (each_line_once, ("contradiction",), None),
    an_event_twice_in_a_bucket: (each_line_once, ("doubled",), 1),
    an_event_less_in_a_bucket: (each_line_once, ("lost",), 1),
    an_event_with_another_value_in_a_bucket: (each_line_once, ("altered",), 1),
    a_destroyed_event_that_a_proof_is_without: (each_line_once, ("falsely proved",), 1),
    a_line_that_came_too_late: (each_line_once, ("closed early",), None),
    a_bucket_that_was_replaced: (closed_once_and_in_time, ("closed twice",), None),
    a_bucket_that_stood_early: (closed_once_and_in_time, ("closed early",), 1),
    a_flow_that_stood: (goes_on, ("stood still",), None),
    a_fault_that_never_healed: (drained, ("not drained",), None),
    a_fault_that_failed: (healed, ("not healed",), 1),
    a_process_that_ended: (nobody_ended, ("ended",), 1),
}
_OF_POSTS: Final = (an_event_that_nobody_posted, an_event_that_never_came)


def overlooked(evidence: Evidence, number: re.Pattern[bytes] = NUMBER) -> dict[str, bool]:
    """By planted fault, whether its checker counted no more than it does without it, or not as many
    as were planted.

    What nobody posted cannot be planted. `number`: what to change in a line.
    """
    found = {}
    evidence = smallest_sample(evidence)
    before = check(evidence)
    for plant, (checker, kinds, count) in PLANTED.items():
        if plant in _OF_POSTS and not evidence.told.api:
            continue
        findings = Findings()
        planted = (
            a_line_with_another_byte(evidence, number)
            if plant is a_line_with_another_byte
            else plant(evidence)
        )
        with planted as changed:
            checker(changed, findings)
        more = [findings[kind] - before.get(kind, 0) for kind in kinds]
        found[plant.__name__] = max(more) != count if count is not None else max(more) <= 0
    return found
