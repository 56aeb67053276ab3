"""The compiled module: `native/` has its source, `native.py` uses it. ValueError is for what it cannot take."""

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
    """The digest of the sources that it was made of."""

def program(program: bytes, /) -> Program:
    """A schema's program, checked."""

def source(types: tuple[_Type, ...], /) -> Source:
    """A source's types, sorted by name."""

def range(source: Source, described: _Described, /) -> Range:
    """What all lines of a range share."""

def read(
    range: Range, body: bytes, at: int, lines_max: int, bytes_max: int, /
) -> tuple[int, bool, list[_Pack], bytes, bytes, bytes, int]:
    """Read lines from `at` on.

    Returns where it stopped, whether it is sure of all up to a limit, records by type, ids (16 bytes each), places (8), value
    hashes (8, native byte order), and the size of all values.
    """

def promises(
    ids: bytes, places: bytes, hashes: bytes, seed: int, /
) -> list[tuple[bytes, int, int, int]]:
    """Return each distinct place with the count of its distinct ids, the sum of their last 8 bytes, and the sum of the hashes of
    distinct pairs of id and hash; sums modulo 2^64.
    """

def value_hashes(
    seeds: Buffer, offsets: Buffer, offset_bytes: int, skip: int, content: Buffer, /
) -> bytes:
    """Return XXH64 of each value of an Arrow binary column, without its first `skip` bytes: 8 bytes each, native byte order.

    `seeds` has 8 bytes for each value, in native byte order; `offsets` one entry more, of `offset_bytes` (4 or 8) bytes.
    Raises ValueError if the offsets do not describe such a column within `content`.
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
    """Return a verdict (one byte) for each value of an Arrow binary column, as `hourmark.avro.datum_check.check_datums` has it.

    `ids` has the schema ids that have programs, ascending, 4 bytes each; program i is `words[starts[i] : starts[i + 1]]`, in
    words of 4 bytes; `starts` has 8 bytes each. Raises ValueError if the buffers do not describe such a column, or such programs.
    """

def tally(reports: int, tell: Callable[[Any], object], /) -> Callable[[Any, object], None]:
    """A callback for so many delivery reports, `(error or None, message)`; `tell` gets every error, and the last report's."""

def kafka(path: bytes, /) -> bool:
    """Find librdkafka's functions where the loaded file at `path` has them; whether all are there."""

def sender() -> Sender | None:
    """That of the producer made last by this thread, with this module among its plugins; once."""

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
    """Hand records over: the next, for which there was no room; why another was refused (0: none was); whether any are under way.

    `tell` comes back from `news`.
    """

def news(sender: Sender, /) -> tuple[Callable[..., object], int, int, bool] | None:
    """Of what one `send` handed over: `tell`; how many failed since it was asked last, and why; whether all have ended."""

# topic, partition; offsets; keys and values: where each begins and the last ends (int32), and their bytes; by record: 1 no key,
# 2 no value, empty where all have both
_Run = tuple[bytes, int, bytes, bytes, bytes, bytes, bytes, bytes]
_Told = tuple[int, bytes, int, int, bytes]  # librdkafka's error, topic, partition, offset, text
_Places = tuple[tuple[bytes, int, int], ...]  # topic, partition, offset

def reader(settings: tuple[tuple[bytes, bytes], ...], /) -> Reader:
    """A consumer of librdkafka's own, which is given its partitions. ValueError says which setting it refuses."""

def assign(reader: Reader, partitions: _Places, /) -> int:
    """Read these from these offsets on, and no others; librdkafka's error, or 0."""

def leave(reader: Reader, partitions: _Places, /) -> int:
    """Read no more of these."""

def consume(
    reader: Reader, records: int, timeout_ms: int, /
) -> tuple[list[_Run], list[_Told]] | int:
    """What came, within the time; or librdkafka's error."""

def close(reader: Reader, /) -> None:
    """Leave the cluster. It is of no use afterwards."""

def blake2b(text: bytes, digest_size: int, /) -> bytes:
    """For tests."""
