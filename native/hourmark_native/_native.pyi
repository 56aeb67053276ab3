"""The compiled module: its source is in `src/`, and `hourmark_native` loads it.

Functions raise ValueError for invalid arguments.
"""

from collections.abc import Callable
from typing import Any, NewType

from typing_extensions import Buffer

Program = NewType("Program", object)
Source = NewType("Source", object)
Range = NewType("Range", object)
Sender = NewType("Sender", object)
Reader = NewType("Reader", object)

# skips a byte order mark; the datum before and after the field; (branch, any bytes)
_Text = tuple[bool, bytes, bytes, tuple[tuple[bytes, bool], ...]]
# name, number, framing, may be without time; a JSON payload's program or a text
_Type = tuple[bytes, int, bytes, bool, Program | None, _Text | None]
# host, source and file, prefix of ids, range id; observed at, earliest, latest (ms), bucket (s), start, longest line and event
_Described = tuple[bytes, bytes, bytes, bytes, int, int, int, int, int, int, int]
_Pack = tuple[int, bytes, bytes, bytes]  # number of a type, keys, values, ends of values

def sources() -> str:
    """Return the digest of the C sources that the module was compiled from."""

def program(program: bytes, /) -> Program:
    """Check a schema's program and return it in the form used by `source`."""

def source(types: tuple[_Type, ...], /) -> Source:
    """Return a source with these types, sorted by name."""

def range(source: Source, described: _Described, /) -> Range:
    """Return what all lines of a byte range have in common."""

def read(
    range: Range, body: bytes, at: int, lines_max: int, bytes_max: int, /
) -> tuple[int, bool, list[_Pack], bytes, bytes, bytes, int]:
    """Parse lines from `at` on.

    Returns the position where it stopped, whether it is certain of the result up to a limit, packed
    records by type, ids (16 bytes each), places (8 bytes each), value hashes (8 bytes each, native
    byte order), and the total size of the values.
    """

def promises(
    ids: bytes, places: bytes, hashes: bytes, seed: int, /
) -> list[tuple[bytes, int, int, int]]:
    """Return the promise of each distinct place: its number of distinct ids, and two sums.

    The sums are those of the last 8 bytes of the ids, and of the hashes of distinct pairs of id and
    hash, modulo 2^64.
    """

def value_hashes(
    seeds: Buffer, offsets: Buffer, offset_bytes: int, skip: int, content: Buffer, /
) -> bytes:
    """Return the XXH64 hash of each value of an Arrow binary column without its first `skip` bytes.

    Each hash has 8 bytes in native byte order. `seeds` has 8 bytes for each value, in native byte
    order. `offsets` has one entry more than there are values, of `offset_bytes` (4 or 8) bytes
    each. Raises ValueError if the offsets do not describe such a column within `content`.
    """

def check_datums(
    ids: Buffer,
    starts: Buffer,
    words: Buffer,
    schemas: Buffer,
    keys: Buffer,
    key_bytes: int,
    offsets: Buffer,
    offset_bytes: int,
    skip: int,
    content: Buffer,
    /,
) -> bytes:
    """Return a one-byte verdict for each value of an Arrow binary column.

    See `hourmark.avro.datum_check.check_datums`. `ids` has the schema ids with programs, ascending,
    4 bytes each. Program i is `words[starts[i] : starts[i + 1]]`, in words of 4 bytes; `starts` has
    8 bytes each. Raises ValueError if the buffers do not describe such a column or programs.
    """

def tally(reports: int, tell: Callable[[Any], object], /) -> Callable[[Any, object], None]:
    """Return a callback that counts `reports` delivery reports, `(error or None, message)`.

    `tell` is called for every error and for the last report.
    """

def kafka(path: bytes, /) -> bool:
    """Find librdkafka's functions in the loaded library at `path`; return whether all exist."""

def sender() -> Sender | None:
    """Return the sender of the producer that this thread created last with this module as a plugin.

    Returns None if there is none, or if it was returned before.
    """

def send(
    sender: Sender,
    topic: bytes,
    keys: bytes,
    values: bytes,
    ends: bytes,
    at: int,
    until: int,
    tell: Callable[..., object],
    /,
) -> tuple[int, int, bool]:
    """Enqueue records for sending.

    Returns the index of the next record, for which there was no room; librdkafka's error of a
    rejected record (0 if none was); and whether any records are in flight. `news` returns `tell`.
    """

def news(sender: Sender, /) -> tuple[Callable[..., object], int, int, bool] | None:
    """Return the progress of one `send` call; None if there is none to report.

    Returns its `tell`, the number of records that failed since the last call, their error, and
    whether all records are done.
    """

# topic, partition; offsets; keys and values: where each begins and the last ends (int32), and their bytes; by record: 1 no key,
# 2 no value, empty where all have both
_Run = tuple[bytes, int, bytes, bytes, bytes, bytes, bytes, bytes]
_Told = tuple[int, bytes, int, int, bytes]  # librdkafka's error, topic, partition, offset, text
_Places = tuple[tuple[bytes, int, int], ...]  # topic, partition, offset

def reader(settings: tuple[tuple[bytes, bytes], ...], /) -> Reader:
    """Create a librdkafka consumer without partitions.

    Raises ValueError with the name of a setting that librdkafka rejects.
    """

def assign(reader: Reader, partitions: _Places, /) -> int:
    """Read exactly these partitions from these offsets on, and return librdkafka's error or 0."""

def leave(reader: Reader, partitions: _Places, /) -> int:
    """Stop reading these partitions."""

def consume(
    reader: Reader, records: int, timeout_ms: int, /
) -> tuple[list[_Run], list[_Told]] | int:
    """Return the records and events that arrive within the time limit, or librdkafka's error code."""

def close(reader: Reader, /) -> None:
    """Close the consumer, which cannot be used afterwards."""

def blake2b(text: bytes, digest_size: int, /) -> bytes:
    """Return the BLAKE2b digest of a text; used by tests only."""
