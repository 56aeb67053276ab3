"""The streaming source as Spark is told of it: a name, one column, and a reader that travels
packed.

Spark asks a source in processes of its own, each of which begins anew: one to learn its name and
schema, one to plan reads, one that plans batches, and workers. The first two need nothing of what a
reader needs, so this module loads nothing but pyspark; a reader is unpacked, and its modules
loaded, where it works (`planner.StreamReader`).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa

COLUMN: Final = "staged"


class _PackedReader(DataSourceStreamReader):
    """Does what the packed one does."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed
        self._unpacked: DataSourceStreamReader | None = None

    def initialOffset(self) -> dict[str, Any]:
        return self._reader().initialOffset()

    def latestOffset(self) -> dict[str, Any]:
        return self._reader().latestOffset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._reader().partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader().read(partition)

    def stop(self) -> None:
        if self._unpacked is not None:
            self._unpacked.stop()

    def _reader(self) -> DataSourceStreamReader:
        if self._unpacked is None:
            self._unpacked = pickle.loads(self._packed)  # noqa: S301  # packed by the driver
        return self._unpacked

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_unpacked": None}


def kafka_source(shard: str, reader: DataSourceStreamReader) -> type[DataSource]:
    """The source of one shard, to be registered; its name is `source_name(shard)`.

    A class of its own, because the options of a source are shown in plans, and a reader's settings
    may hold secrets.
    """
    packed = pickle.dumps(reader)

    class KafkaSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return source_name(shard)

        def schema(self) -> str:
            return f"{COLUMN} binary"

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002
            return _PackedReader(packed)

    return KafkaSource


def source_name(shard: str) -> str:
    """As `readStream.format` takes it."""
    return f"hourmark-{shard}"
