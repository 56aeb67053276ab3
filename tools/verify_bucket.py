#!/usr/bin/env python3
"""Verify a copy of the closed buckets of one event type without Hourmark.

It reports whether anything was changed, added or removed. It needs Python 3.11,
`pip install fastavro` (`"fastavro[zstandard]"` for buckets with this codec), and a local copy of
the type's folder (the one that contains `date=…`):

    hdfs dfs -get /hourmark/page-viewed .
    python verify_bucket.py page-viewed
    python verify_bucket.py page-viewed --last 2026-11-21T05 --json

Each bucket is a folder with a marker, `_SUCCESS`, which lists its files and contains the digest of
the previous marker; the first marker states that it is the first. One marker therefore
authenticates all previous ones. The tool checks

- the chain from the first bucket on; hours without a bucket are accepted only where the next marker
  names the bucket before them: a back-fill skips hours that hold nothing;
- that exactly the listed files exist, with their sizes, digests, codecs, schemas and numbers of
  records; of Parquet files, only sizes and digests are checked;
- that every id exists once in all buckets together, and in the hour that it encodes;
- the counts and sums of the markers;
- that no marker contradicts itself or its own digest;
- the markers of buckets that were removed by retention, which are in `_removed/DATE.json`. They are
  part of the chain.

A copy cannot show whether buckets at the end of the chain were removed. Give the last known hour
with --last, and compare the printed digest of the last marker with one from another source.

Exit code 0: complete and unchanged. 1: findings, one per line. 2: invalid usage.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import datetime as dt
import hashlib
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro

MARKER = "_SUCCESS"
PARQUET_FOLDER = "_parquet"
REMOVED_FOLDER = "_removed"  # with tombstones: the markers of removed buckets by day
FORMAT = 1
GRADES = ("proved", "timed_out", "forced")
SOFTWARE_CHARS_MAX = 40  # of markers without a digest of themselves
EXAMPLES_MAX = 3
_HEAD_BITS = 80  # an id (RFC 9562, version 8): 48 bits of Unix milliseconds, then 80 of a digest


@dataclasses.dataclass
class CopiedBucket:
    """A bucket folder and the marker that it contains.

    Attributes:
        folder: Path of the bucket's folder.
        marker: Bytes of the marker file.
        manifest: JSON object of the marker.
        is_removed: Whether the marker is from a tombstone, so there are no files.
    """

    folder: Path
    marker: bytes
    manifest: dict[str, Any]
    is_removed: bool = False

    @property
    def label(self) -> str:
        return str(self.manifest["hour"])

    @property
    def length_s(self) -> int:
        return int(self.manifest["bucket_seconds"])

    @property
    def start_s(self) -> int:
        return start_of(self.label)

    @property
    def digest(self) -> str:
        return blake2b(self.marker)


@dataclasses.dataclass(kw_only=True)
class VerificationReport:
    """The result of a verification.

    Attributes:
        findings: Place and description of each problem.
    """

    type: str = ""
    first: str = ""
    last: str = ""
    last_marker: str = ""
    buckets: int = 0
    removed: int = 0
    events: int = 0
    grades: dict[str, int] = dataclasses.field(default_factory=dict)
    findings: list[tuple[str, str]] = dataclasses.field(default_factory=list)

    def add(self, where: object, what: str) -> None:
        self.findings.append((str(where), what))


def blake2b(content: bytes, size: int = 16) -> str:
    """Return the hexadecimal BLAKE2b digest of `content`, in the form that markers contain.

    Args:
        content: Bytes to hash.
        size: Length of the digest in bytes.
    """
    return hashlib.blake2b(content, digest_size=size).hexdigest()


def start_of(label: str) -> int:
    """Return the start of an hour in Unix seconds.

    Args:
        label: Label of the hour, for example `2026-11-21T05`.

    Raises:
        ValueError: The label is not valid.
    """
    form = "%Y-%m-%dT%H:%M" if ":" in label else "%Y-%m-%dT%H"
    return int(dt.datetime.strptime(label, form).replace(tzinfo=dt.UTC).timestamp())


def label_of(start_s: int, length_s: int) -> str:
    """Return the label of an hour, for example `2026-11-21T05`.

    Args:
        start_s: Start of the hour in Unix seconds.
        length_s: Length of a bucket in seconds.
    """
    return dt.datetime.fromtimestamp(start_s, dt.UTC).strftime(
        "%Y-%m-%dT%H" if length_s == 3600 else "%Y-%m-%dT%H:%M"
    )


def path_of(start_s: int, length_s: int) -> str:
    """Return the path of a bucket's folder relative to the folder of its type.

    Args:
        start_s: Start of the bucket's hour in Unix seconds.
        length_s: Length of a bucket in seconds.
    """
    return dt.datetime.fromtimestamp(start_s, dt.UTC).strftime(
        "date=%Y-%m-%d/hour=%H" + ("" if length_s == 3600 else "/minute=%M")
    )


def hour_of_id(event_id: bytes, length_s: int) -> int:
    """Return the start of the hour that an event id encodes, in Unix seconds.

    Args:
        event_id: Event id, 16 bytes.
        length_s: Length of a bucket in seconds.
    """
    seconds = (int.from_bytes(event_id, "big") >> _HEAD_BITS) // 1000
    return seconds - seconds % length_s


def read_buckets(root: Path, report: VerificationReport) -> list[CopiedBucket]:
    """Return all buckets in a copy in the order of their hours.

    Files that belong to no bucket are added to the findings.

    Args:
        root: Folder of the event type.
        report: Report to which findings are added.
    """
    found = {bucket.start_s: bucket for bucket in read_tombstones(root, report)}
    folders = {path.parent for path in root.rglob(MARKER)}
    for folder in sorted(folders):
        where = folder.relative_to(root)
        content = (folder / MARKER).read_bytes()
        try:
            manifest = json.loads(content)
            if manifest["format"] != FORMAT:
                raise ValueError(f"format {manifest['format']}, but this tool supports {FORMAT}")
            bucket = CopiedBucket(folder, content, manifest)
            check_marker(bucket, where, report)
            if path_of(bucket.start_s, bucket.length_s) != str(where):
                raise ValueError(f"it is the marker of {bucket.label}")
            found[bucket.start_s] = bucket
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            report.add(where / MARKER, f"no marker of this bucket: {type(error).__name__}: {error}")
    for path in sorted(root.rglob("*")):
        inside = path in folders or not folders.isdisjoint(path.parents)
        inside = inside or path.relative_to(root).parts[0] == REMOVED_FOLDER
        if not inside and not any(path in folder.parents for folder in folders):
            report.add(
                path.relative_to(root),
                "belongs to no bucket: there is no marker next to it or below it",
            )
    return [found[start] for start in sorted(found)]


def read_tombstones(root: Path, report: VerificationReport) -> Iterator[CopiedBucket]:
    """Yield all buckets that were removed by retention, with their markers from tombstones.

    A damaged tombstone is added to the findings.

    Args:
        root: Folder of the event type.
        report: Report to which findings are added.
    """
    for path in sorted((root / REMOVED_FOLDER).glob("*")):
        where = path.relative_to(root)
        try:
            content = path.read_bytes()
            tombstone = json.loads(content)
            if tombstone["format"] != FORMAT:
                raise ValueError(f"format {tombstone['format']}, this tool supports {FORMAT}")
            if not has_own_digest(content, str(tombstone["software"])):
                raise ValueError("it was changed after it was written")
            for entry in tombstone["buckets"]:
                marker = entry["marker"].encode()
                bucket = CopiedBucket(path, marker, json.loads(marker), is_removed=True)
                check_marker(bucket, where, report)
                if path.name != f"{tombstone['date']}.json" or not (
                    bucket.label == entry["hour"] and bucket.label.startswith(tombstone["date"])
                ):
                    raise ValueError(f"it contains the marker of {bucket.label}")
                report.removed += 1
                yield bucket
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            report.add(where, f"no tombstone of this day: {type(error).__name__}: {error}")


def check_marker(bucket: CopiedBucket, where: Path, report: VerificationReport) -> None:
    """Check that the statements of a marker are consistent, independent of the bucket's files.

    Args:
        bucket: Bucket with the marker.
        where: Path of the marker for findings.
        report: Report to which findings are added.
    """
    m = bucket.manifest
    waived, method = m["evidence"]["waived"], m["evidence"]["method"]
    files, books = m["files"], m["books"].values()
    listed = sum(f["records"] for f in files)
    wrong = {
        f"its grade is {m['grade']!r}": m["grade"] not in GRADES,
        f"it is {m['grade']}, but waives {waived}": (m["grade"] == "proved") == bool(waived),
        f"it states {m['events']} events, but its files have {listed}": m["events"] != listed,
        "it lists a file twice or a file of another folder": len(
            {f["name"] for f in files if "/" not in f["name"]}
        )
        != len(files),
        f"nothing was promised (method {method}), yet it settles promises": method == "empty"
        and bool(m["evidence"]["promised"] or m["evidence"]["audit_records"]),
        f"its method is {method!r}": method not in ("sums", "join", "empty"),
        "it states more events checked by checksum than promised events": not 0
        <= m.get("checked", 0)
        <= m["evidence"]["promised"],
        "it names more records set aside than it counts": m.get("set_aside", 0)
        < sum(r["records"] for r in m.get("set_aside_records", ())),
        "it states a codec, but lists no files": "codec" in m and not files,
        "it was closed before its hour ended": m["closed_at_ms"]
        < 1000 * (bucket.start_s + bucket.length_s),
        "its books do not add up to its events": bool(books)
        and sum(b["events"] for b in books) != m["events"],
        "its books do not account for its duplicates": bool(books)
        and m["grade"] != "forced"  # which may go without files that are gone
        and sum(b["rows"] - b["events"] for b in books) != m["duplicates_removed"],
        "it was changed after it was written: its own digest does not match": not vouches_for_itself(
            bucket
        ),
        "it contains a negative count": min(
            m["duplicates_removed"], m["unaudited"], *(b["rows"] for b in books), 0
        )
        < 0,
    }
    for what in (what for what, is_wrong in wrong.items() if is_wrong):
        report.add(where / MARKER, what)


def vouches_for_itself(bucket: CopiedBucket) -> bool:
    """Return whether the marker's field `software` ends with the digest of the marker.

    The digest is computed with zeros in its own place. Short values of that field, from versions
    before 0.3.0, contain no digest; the result is true for them.
    """
    software = str(bucket.manifest["software"])
    return len(software) <= SOFTWARE_CHARS_MAX or has_own_digest(bucket.marker, software)


def has_own_digest(content: bytes, software: str) -> bool:
    """Return whether a file matches the digest at the end of its field `software`.

    Args:
        content: Bytes of a marker or tombstone.
        software: Value of the field.
    """
    said = software[-32:]
    blank = content.replace(f' blake2b={said}"'.encode(), f' blake2b={"0" * 32}"'.encode())
    return blake2b(blank) == said


def check_chain(buckets: list[CopiedBucket], last: str | None, report: VerificationReport) -> None:
    """Check that every marker names the previous one, and that the first states that it is first.

    Args:
        buckets: All buckets, in the order of their hours.
        last: Label of the last hour that must exist, or None.
        report: Report to which findings are added.
    """
    before: CopiedBucket | None = None
    for bucket in buckets:
        said = bucket.manifest.get("previous", "nothing (written before markers were chained)")
        if bucket.manifest["type"] != buckets[0].manifest["type"]:
            report.add(
                bucket.label,
                f"is of type {bucket.manifest['type']}, the first is of "
                f"{buckets[0].manifest['type']}",
            )
        if before is None:
            if said is not None:
                report.add(
                    bucket.label,
                    "the copy begins here, but this is not the type's first bucket: it "
                    f"follows {said}",
                )
        elif said != (stands := {"hour": before.label, "blake2b": before.digest}):
            is_next = bucket.start_s == before.start_s + before.length_s
            report.add(
                bucket.label,
                f"broken chain: its marker follows {said}, but the previous marker is {stands}"
                if is_next
                else f"there is no bucket between {before.label} and this one, but hours are closed "
                "in order",
            )
        before = bucket
    if last is not None and (before is None or before.start_s < start_of(last)):
        report.add(last, f"missing: the copy ends with {before.label if before else 'nothing'}")


def read_content(
    bucket: CopiedBucket, listed: dict[str, Any], report: VerificationReport
) -> bytes | None:
    """Return the content of a file of a bucket, or None if the file does not exist.

    A missing file and a size or digest other than in the marker are added to the findings.

    Args:
        bucket: Bucket that contains the file.
        listed: Entry of the file in the marker.
        report: Report to which findings are added.
    """
    path = bucket.folder / str(listed["name"])
    where = f"{bucket.label} {listed['name']}"
    if not path.is_file():
        report.add(where, f"is missing; the marker lists it with {listed['records']} records")
        return None
    content = path.read_bytes()
    if len(content) != listed["bytes"]:
        report.add(where, f"{len(content)} bytes, but the marker states {listed['bytes']}")
    if blake2b(content) != listed["blake2b"]:
        report.add(where, f"blake2b {blake2b(content)}, but the marker states {listed['blake2b']}")
    return content


def read_file(
    bucket: CopiedBucket, listed: dict[str, Any], report: VerificationReport
) -> list[bytes]:
    """Return the event ids in a file of a bucket.

    A difference from the marker is added to the findings.

    Args:
        bucket: Bucket that contains the file.
        listed: Entry of the file in the marker.
        report: Report to which findings are added.
    """
    content = read_content(bucket, listed, report)
    if content is None:
        return []
    where = f"{bucket.label} {listed['name']}"
    ids: list[bytes] = []
    try:
        reader: Any = fastavro.reader(io.BytesIO(content))
        if reader.codec != (codec := bucket.manifest.get("codec", "zstandard")):
            report.add(where, f"its codec is {reader.codec}, but by the marker it is {codec}")
        schema = json.dumps(
            json.loads(reader.metadata["avro.schema"]),
            sort_keys=True,
            separators=(",", ":"),
            ensure_ascii=False,
        )
        if (mark := blake2b(schema.encode(), 8)) != listed["schema_fingerprint"]:
            report.add(
                where,
                f"its schema has the fingerprint {mark}, but the marker states "
                f"{listed['schema_fingerprint']}",
            )
        for record in reader:
            event_id = record["event_id"]
            ids.append(event_id if isinstance(event_id, bytes) else event_id.bytes)
    except Exception as error:  # noqa: BLE001  # damaged bytes make a decoder raise anything
        report.add(
            where, f"cannot be read after {len(ids)} records: {type(error).__name__}: {error}"
        )
        return ids
    if len(ids) != listed["records"]:
        report.add(where, f"{len(ids)} records, but the marker states {listed['records']}")
    return ids


def check_files(buckets: list[CopiedBucket], report: VerificationReport) -> None:
    """Check the files and ids of all buckets.

    Memory holds the ids of one bucket and all late ids.

    Args:
        buckets: All buckets, in the order of their hours.
        report: Report to which findings are added.
    """
    late: dict[bytes, str] = {}
    for bucket in buckets:  # first those that may stand in another bucket, too
        for event_id in (
            i
            for f in bucket.manifest["files"]
            if f["name"].startswith("late-")
            for i in ids_of(bucket, f)
        ):
            late.setdefault(event_id, bucket.label)
    for bucket in buckets:
        parquet = bucket.manifest.get("parquet", [])
        names = {f["name"] for f in (*bucket.manifest["files"], *parquet)} | {MARKER}
        if parquet:
            names.add(PARQUET_FOLDER)
        for listed in parquet:
            read_content(bucket, listed, report)
        for path in sorted(
            p
            for p in bucket.folder.rglob("*")
            if p.relative_to(bucket.folder).as_posix() not in names
        ):
            report.add(
                f"{bucket.label} {path.relative_to(bucket.folder)}",
                "exists, but the marker does not list it",
            )
        check_bucket(bucket, late, report)


def ids_of(bucket: CopiedBucket, listed: dict[str, Any]) -> list[bytes]:
    """Return the event ids in a file of a bucket as far as they can be read, without findings.

    Args:
        bucket: Bucket that contains the file.
        listed: Entry of the file in the marker.
    """
    return read_file(bucket, listed, VerificationReport())


def check_bucket(bucket: CopiedBucket, late: dict[bytes, str], report: VerificationReport) -> None:
    """Check that each id of a bucket exists once, belongs to its hour and is counted by the marker.

    Args:
        bucket: Bucket to check.
        late: Label of the bucket by late event id.
        report: Report to which findings are added.
    """
    m, seen, total = bucket.manifest, set[bytes](), 0
    origins: collections.Counter[str] = collections.Counter()
    for listed in m["files"]:
        is_late = listed["name"].startswith("late-")
        again, strange = [], []
        for event_id in read_file(bucket, listed, report):
            if (
                event_id in seen
                or late.get(event_id, bucket.label) != bucket.label
                or (not is_late and event_id in late)
            ):
                again.append(event_id)
            seen.add(event_id)
            total += int.from_bytes(event_id[8:], "big")
            start_s = hour_of_id(event_id, bucket.length_s)
            if (start_s >= bucket.start_s) if is_late else (start_s != bucket.start_s):
                strange.append(event_id)
            if is_late:
                origins[label_of(start_s, bucket.length_s)] += 1
        where = f"{bucket.label} {listed['name']}"
        if again:
            report.add(where, f"{named(again)} more than once in these buckets")
        if strange:
            report.add(where, f"{named(strange)} of another hour than this file may contain")
        report.events += listed["records"]
    if f"{total % (1 << 64):016x}" != m["id_sum"]:
        report.add(
            bucket.label,
            f"the sum of ids is {total % (1 << 64):016x}, but the marker states {m['id_sum']}",
        )
    if dict(origins) != m["late"]:
        report.add(
            bucket.label,
            f"late events by hour are {dict(origins)}, but the marker states {m['late']}",
        )


def named(ids: list[bytes]) -> str:
    """Describe a list of event ids by its length and a few examples."""
    return (
        f"{len(ids)} "
        f"({', '.join(i.hex() for i in ids[:EXAMPLES_MAX])}{', …' if len(ids) > EXAMPLES_MAX else ''})"
    )


def verify(root: Path, last: str | None = None) -> VerificationReport:
    """Verify a copy of an event type's closed buckets.

    Args:
        root: Folder of the event type.
        last: Label of the last hour that must exist, or None.

    Returns:
        The report; no findings if the copy is complete and unchanged.
    """
    report = VerificationReport()
    buckets = read_buckets(root, report)
    if not buckets:
        report.add(root, "there is no bucket; specify the folder that contains date=…")
        return report
    try:
        check_chain(buckets, last, report)
        check_files([bucket for bucket in buckets if not bucket.is_removed], report)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        report.add(
            root,
            f"a marker is not valid, so nothing more can be checked: {error!r}",
        )
    report.type, report.first, report.last = (
        str(buckets[0].manifest.get("type")),
        buckets[0].label,
        buckets[-1].label,
    )
    report.buckets, report.last_marker = len(buckets), buckets[-1].digest
    report.grades = dict(collections.Counter(str(b.manifest.get("grade")) for b in buckets))
    return report


def render_lines(report: VerificationReport, last: str | None) -> Iterator[str]:
    """Yield the lines of a report as text for people.

    Args:
        report: Result of the verification.
        last: Label of the last hour that was required to exist, or None.
    """
    for where, what in report.findings:
        yield f"{where}: {what}"
    if report.buckets:
        grades = ", ".join(f"{count} {grade}" for grade, count in sorted(report.grades.items()))
        yield (
            f"{report.type}: {report.buckets} buckets ({grades}), {report.first} to "
            f"{report.last}, {report.events} events"
            f"{f', {report.removed} buckets were removed by retention' if report.removed else ''}"
        )
        yield f"the last marker has blake2b {report.last_marker}"
    if last is None:
        yield (
            "a copy does not show whether later buckets were removed: use --last, or "
            "compare the last marker's digest"
        )
    yield (
        f"{len(report.findings)} findings"
        if report.findings
        else "the chain is complete, and the files match the markers"
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: Command-line arguments; None for those of this process.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="the copy of the type's folder")
    parser.add_argument(
        "--last", metavar="HOUR", help="the copy must reach at least this hour, e.g. 2026-11-21T05"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    a = parser.parse_args(arguments)
    if not a.folder.is_dir():
        parser.error(f"{a.folder} is not a folder")
    try:
        if a.last is not None:
            start_of(a.last)
    except ValueError:
        parser.error(
            f"--last {a.last} is not a valid hour; write it as 2026-11-21T05, or as "
            "2026-11-21T05:07 if buckets are shorter than an hour"
        )
    report = verify(a.folder, a.last)
    if a.json:
        found = [{"where": where, "what": what} for where, what in report.findings]
        print(
            json.dumps(
                {
                    **dataclasses.asdict(report),
                    "findings": found,
                    "end_checked": a.last is not None,
                },
                indent=1,
            )
        )
    else:
        print("\n".join(render_lines(report, a.last)))
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
