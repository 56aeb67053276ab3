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
    """Validate the program of a JSON payload and return a handle to it, to be used in `source`.

    Args:
        program: Output of `compile_program` in the delivery service.
    """

def source(types: tuple[_Type, ...], /) -> Source:
    """Create a handle to the event types of one log source, to be used in `range`.

    Args:
        types: Description of each event type (see `_Type`), sorted by type name.
    """

def range(source: Source, description: _Described, /) -> Range:
    """Create a handle to one byte range, to be used in `read`.

    Args:
        source: The event types that lines of the range can have.
        description: Values that all lines of the range share (see `_Described`).
    """

def read(
    range: Range, body: bytes, at: int, lines_max: int, bytes_max: int, /
) -> tuple[int, bool, list[_Pack], bytes, bytes, bytes, int]:
    """Parse lines of a byte range into Kafka records, until a limit or a line that needs Python.

    Only one thread may read a range at a time.

    Args:
        range: The byte range.
        body: Bytes of the range.
        at: Position in `body` of the first line to parse.
        lines_max: Maximum number of lines to parse.
        bytes_max: Number of bytes after which no further line is parsed.

    Returns:
        A tuple of seven elements:

        - the position of the next line
        - True if parsing ended at a limit or at the end of `body`; False if it ended before a line
          that Python must parse
        - the records of each event type
        - the event ids of all records, in order, 16 bytes each
        - their places (type number and hour), 8 bytes each
        - their value hashes, 8 bytes each, native byte order
        - the total size of the values in bytes
    """

def promises(
    ids: bytes, places: bytes, hashes: bytes, seed: int, /
) -> list[tuple[bytes, int, int, int]]:
    """Count the events of a byte range for each place (event type and hour).

    Args:
        ids: Event id of each record, 16 bytes each.
        places: Place of each record, 8 bytes each, as returned by `read`.
        hashes: Value hash of each record, 8 bytes each, native byte order.
        seed: Seed of internal hash tables, which the author of the lines must not be able to guess.

    Returns:
        For each distinct place: the place, the number of distinct ids, the sum of the last 8 bytes
        of these ids, and the sum of the hashes of distinct pairs of id and hash. Sums are modulo
        2^64.
    """

def value_hashes(
    seeds: Buffer, offsets: Buffer, offset_bytes: int, skip: int, content: Buffer, /
) -> bytes:
    """Return the XXH64 hash of each value of an Arrow binary column without its first `skip` bytes.

    Args:
        seeds: Seed of each hash, 8 bytes each, native byte order.
        offsets: Arrow offsets of the column: the start of each value, then the end of the last.
        offset_bytes: Size of each offset in bytes: 4 or 8.
        skip: Number of bytes to leave out at the beginning of each value.
        content: Arrow data of the column: all values, concatenated.

    Returns:
        The hashes, 8 bytes each, native byte order.

    Raises:
        ValueError: The offsets do not describe a column within `content`.
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
    """Check the Avro datum in each value of an Arrow binary column.

    `hourmark.avro.datum_check.check_datums` describes the check and the parameters that it shares
    with this function.

    Args:
        ids: Schema ids that have programs, ascending, 4 bytes each.
        starts: Index in `words` at which each program starts, then the end of the last program, 8
            bytes each.
        words: All programs, concatenated, in words of 4 bytes.

    Returns:
        One byte for each value: the verdict.

    Raises:
        ValueError: The buffers do not describe a column and programs.
    """

def tally(reports: int, callback: Callable[[Any], object], /) -> Callable[[Any, object], None]:
    """Return a delivery callback that counts reports and forwards only errors and the last report.

    Args:
        reports: Number of delivery reports to expect.
        callback: Called with the error (or None) of each failed report and of the last report.

    Returns:
        A function that takes an error (or None) and a message.
    """

def kafka(path: bytes, /) -> bool:
    """Locate the functions of librdkafka that this module needs, in a library that is loaded.

    Args:
        path: Path of the library.

    Returns:
        Whether all functions were found.
    """

def sender() -> Sender | None:
    """Return a sender for the last producer that this thread created with this module as a plugin.

    Returns:
        The sender. None if there is no such producer, or if its sender was already returned.
    """

def send(
    sender: Sender,
    topic: bytes,
    keys: bytes,
    values: bytes,
    ends: bytes,
    at: int,
    until: int,
    callback: Callable[..., object],
    /,
) -> tuple[int, int, bool]:
    """Enqueue Kafka records in a producer, without waiting for acknowledgements.

    Args:
        sender: Sender of the producer.
        topic: Name of the topic.
        keys: Keys of all records, concatenated, 24 bytes each.
        values: Values of all records, concatenated.
        ends: End of each value in `values`, 4 bytes each, native byte order.
        at: Index of the first record to send.
        until: Index after the last record to send.
        callback: Returned by `news` with the progress of these records. It is not called.

    Returns:
        The index of the first record for which the queue had no room (`until` if there is none);
        librdkafka's error code of a rejected record (0 if there is none); and whether any records
        were enqueued, so that `news` will report on them.
    """

def news(sender: Sender, /) -> tuple[Callable[..., object], int, int, bool] | None:
    """Return the progress of one `send` call, or None if there is no new progress.

    Returns:
        The `callback` of the `send` call; the number of its records that failed since the last
        report; their error code; and whether all its records are acknowledged or failed.
    """

# topic, partition, leader epoch (below 0: none); offsets; keys and values: where each begins and the last ends (int32), and their bytes; by record: 1 no key,
# 2 no value, empty where all have both
_Run = tuple[bytes, int, int, bytes, bytes, bytes, bytes, bytes, bytes]
_Told = tuple[int, bytes, int, int, bytes]  # librdkafka's error, topic, partition, offset, text
_Places = tuple[
    tuple[bytes, int, int, int], ...
]  # topic, partition, offset, leader epoch (-1: none)

def reader(settings: tuple[tuple[bytes, bytes], ...], /) -> Reader:
    """Create a librdkafka consumer that has no partitions assigned.

    Args:
        settings: Names and values of librdkafka settings.

    Raises:
        ValueError: librdkafka rejects a setting. The message contains its name.
    """

def assign(reader: Reader, partitions: _Places, /) -> int:
    """Read exactly these partitions from now on, each from the given offset.

    Returns:
        librdkafka's error code; 0 if there is no error.
    """

def leave(reader: Reader, partitions: _Places, /) -> int:
    """Stop reading these partitions.

    Returns:
        librdkafka's error code; 0 if there is no error.
    """

def high(reader: Reader, topic: bytes, partition: int, /) -> int:
    """Return the high watermark of a partition, as of the consumer's latest fetch.

    Returns:
        The offset after the last record; negative if it is unknown.
    """

def consume(
    reader: Reader, records: int, timeout_ms: int, /
) -> tuple[list[_Run], list[_Told]] | int:
    """Return the records and events that arrive within a time limit.

    Args:
        reader: The consumer.
        records: Maximum number of records and events.
        timeout_ms: Time limit in milliseconds.

    Returns:
        Runs of consecutive records (see `_Run`), and partition ends and errors (see `_Told`). If
        the request failed, librdkafka's error code instead.
    """

def close(reader: Reader, /) -> None:
    """Close the consumer. It cannot be used afterwards."""

def blake2b(text: bytes, digest_size: int, /) -> bytes:
    """Return the BLAKE2b digest of a text; used by tests only."""
