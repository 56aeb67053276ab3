"""Kafka records without their topic: as dicts, which confluent_kafka takes, or many of them packed
into bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, overload

from hourmark.records.record_key import KEY_SIZE

Message = dict[str, bytes]  # `key` and `value`

END_SIZE: Final = 4


class PackedMessages(Sequence[Message]):
    """Records as the native pass makes them: no Python object each, until one is asked for."""

    def __init__(self, keys: bytes, values: bytes, ends: bytes) -> None:
        """Keys of `KEY_SIZE` bytes and values, one after the other; where each value ends, 4 bytes
        in the processor's order.
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
    """Records of one topic in their order, some of them packed."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []

    def add(self, chunk: Chunk) -> None:
        """Records after those that are there."""
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
    """The same records, in the parts that they were made in."""
    return messages.chunks if isinstance(messages, Messages) else [list(messages)]
