"""Kafka records of one topic, as dicts for confluent_kafka or packed into byte strings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, overload

from hourmark.records.record_key import KEY_SIZE

Message = dict[str, bytes]  # `key` and `value`

END_SIZE: Final = 4


class PackedMessages(Sequence[Message]):
    """An immutable sequence of Kafka records, stored without a Python object per record.

    The native parser returns records in this form. Each item is a dict with `key` and `value`,
    which is created on access. All keys have `KEY_SIZE` bytes.
    """

    def __init__(self, keys: bytes, values: bytes, ends: bytes) -> None:
        """Create a sequence of records from their concatenated keys and values.

        Args:
            keys: Record keys of `KEY_SIZE` bytes each, concatenated.
            values: Record values, concatenated.
            ends: End offset of each value in `values`, as unsigned 32-bit integers in native byte
                order.
        """
        self.keys = keys
        self.values = values
        self.ends = ends
        self._offsets = memoryview(ends).cast("I")

    def __len__(self) -> int:
        return len(self._offsets)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            return [self._one(i) for i in range(*index.indices(len(self)))]
        return self._one(range(len(self))[index])

    def __iter__(self) -> Iterator[Message]:
        return map(self._one, range(len(self)))

    def _one(self, index: int) -> Message:
        start = self._offsets[index - 1] if index else 0
        key = self.keys[KEY_SIZE * index : KEY_SIZE * (index + 1)]
        return {"key": key, "value": self.values[start : self._offsets[index]]}


Chunk = list[Message] | PackedMessages


class Messages(Sequence[Message]):
    """An append-only sequence of Kafka records of one topic, stored as a list of chunks.

    Each item is a dict with the record's `key` and `value`. A chunk is either a list of such dicts
    or a `PackedMessages` object.
    """

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []

    def add(self, chunk: Chunk) -> None:
        """Append a chunk of records to the sequence.

        Args:
            chunk: A list of records or a packed sequence. A list is not copied, and later calls may
                extend it in place.
        """
        last = self.chunks[-1] if self.chunks else None
        if isinstance(last, list) and isinstance(chunk, list):
            last += chunk
        else:
            self.chunks.append(chunk)

    def __len__(self) -> int:
        return sum(map(len, self.chunks))

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        return list(self)[index]

    def __iter__(self) -> Iterator[Message]:
        for chunk in self.chunks:
            yield from chunk


def message_chunks(messages: Sequence[Message]) -> Sequence[Chunk]:
    """Divide a sequence of Kafka records into chunks that can be sent to Kafka.

    A chunk is either a list of dicts or a `PackedMessages` object, which has a faster send path.

    Args:
        messages: Records of one topic.

    Returns:
        The chunks of a `Messages` object, which are not copied. For any other sequence, a single
        chunk with a copy of it.
    """
    return messages.chunks if isinstance(messages, Messages) else [list(messages)]
