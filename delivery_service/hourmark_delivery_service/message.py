"""Kafka records of one topic, as dicts for confluent_kafka or packed into byte strings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, overload

from hourmark.records.record_key import KEY_SIZE

Message = dict[str, bytes]  # `key` and `value`

END_SIZE: Final = 4


class PackedMessages(Sequence[Message]):
    """An immutable sequence of Kafka records that are stored in three byte strings.

    The native parser returns records in this form, which needs no Python object per record.
    Indexing and iteration create the dicts on demand.
    """

    def __init__(self, keys: bytes, values: bytes, ends: bytes) -> None:
        """Create a sequence over packed records.

        Args:
            keys: The record keys, `KEY_SIZE` bytes each, concatenated.
            values: The record values, concatenated.
            ends: The end offset of each value in `values`, as unsigned 32-bit integers in native
                byte order.
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
    """An append-only sequence of the Kafka records of one topic, stored in chunks."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []

    def add(self, chunk: Chunk) -> None:
        """Append a list of records or a packed chunk of records."""
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
    """Return the records of a sequence in the chunks in which they were added, without a copy.

    Args:
        messages: A `Messages` object, or any other sequence, which becomes a single chunk.
    """
    return messages.chunks if isinstance(messages, Messages) else [list(messages)]
