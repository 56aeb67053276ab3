"""The streaming source that is registered with Spark: a name, one column and a pickled reader.

Spark uses new processes to get a source's name and schema, to plan reads, to plan batches and to
run tasks. The first two do not need the reader, so this module imports only pyspark. The reader and
its modules (`planner.StreamReader`) are loaded in the processes that use it.
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
    # The reader is unpickled on first use.
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
    """Create the Spark data source class of a shard.

    The caller must register the class with Spark. The reader is not passed in options, because its
    settings may contain secrets and Spark shows options in query plans.

    Args:
        shard: Name of the shard, which is a set of event types that one streaming query copies to
            storage.
        reader: Reader for the source. It must be picklable.

    Returns:
        A class whose format name in Spark is `source_name(shard)`.
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
    """Return the Spark format name of a shard's data source, for `spark.readStream.format`.

    Args:
        shard: Name of the shard, which is a set of event types that one streaming query copies to
            storage.
    """
    return f"hourmark-{shard}"
