"""The selected events, and their conversion to tables of several libraries."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any, Final

import pyarrow as pa

from hourmark_reading.coverage import FileTask, HourCoverage
from hourmark_reading.decoding import EventDecoder
from hourmark_reading.index import missing_file
from hourmark_reading.store import BucketStore

if TYPE_CHECKING:  # optional packages
    import duckdb
    import pandas
    import polars
    import pyspark.sql

BATCH_ROWS: Final = 16_384


@dataclasses.dataclass(frozen=True)
class Events:
    """Events of one type and span, which are read from the store by the methods.

    The order is: files of the hours themselves in the order of the hours, then files with late
    events. Within a file, events are sorted by `event_id`, which begins with the event time. Each
    method call reads all files again. It raises `DamagedAvroFile` if a file is missing or differs
    from its marker, and the store's exceptions if the store is unavailable.

    Attributes:
        hours: The hours that are read, in ascending order.
        schema: Arrow schema of the columns.
    """

    _store: BucketStore
    _tasks: tuple[FileTask, ...]
    _decoder: EventDecoder
    hours: tuple[HourCoverage, ...]
    schema: pa.Schema

    @property
    def avro_schema(self) -> str:
        """The newest schema of the files, as JSON. It has all fields of the type."""
        return self._decoder.avro_schema

    def files(self) -> list[str]:
        """Return the URLs of the data files that are read.

        Files with late events, and files of hours that only overlap the span, also contain events
        outside of it. A reader of these files must select events by `event_time`.
        """
        return [self._store.full_url(task.path) for task in self._tasks]

    def batches(self, batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the events as record batches. Memory does not grow with the number of events.

        Args:
            batch_rows: Maximum number of rows of a batch, at least 1.

        Yields:
            Record batches with at least one row each; none if there are no events.
        """
        if batch_rows < 1:
            raise ValueError(f"batch_rows is {batch_rows}; it must be at least 1")
        return self._batches(batch_rows)

    def _batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        for task in self._tasks:
            yield from decode_file(self._store, self._decoder, task, batch_rows)

    def to_reader(self, batch_rows: int = BATCH_ROWS) -> pa.RecordBatchReader:
        """Return the events as a stream that other Arrow libraries read once.

        Args:
            batch_rows: Maximum number of rows of a batch, at least 1.
        """
        return pa.RecordBatchReader.from_batches(self.schema, self.batches(batch_rows))

    def to_table(self) -> pa.Table:
        """Return the events as an Arrow table, which has no rows if there are no events."""
        return pa.Table.from_batches(self.batches(), schema=self.schema)

    def to_pandas(self) -> pandas.DataFrame:
        """Return the events as a pandas DataFrame.

        Integers and booleans have pandas' nullable types, such as `Int64`, so that a missing value
        does not turn a column into floating-point numbers.
        """
        import pandas

        types = {
            pa.bool_(): pandas.BooleanDtype(),
            pa.int32(): pandas.Int32Dtype(),
            pa.int64(): pandas.Int64Dtype(),
        }
        return self.to_table().to_pandas(types_mapper=types.get)

    def to_polars(self) -> polars.DataFrame:
        """Return the events as a polars DataFrame."""
        import polars

        frame = polars.from_arrow(self.to_table())
        assert isinstance(frame, polars.DataFrame), "of a table"
        return frame

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyRelation:
        """Return the events as a DuckDB relation, which can be queried repeatedly.

        The events are kept in memory. To query a stream once, pass `to_reader()` to DuckDB.

        Args:
            connection: Connection of the relation.
        """
        return connection.from_arrow(self.to_table())

    def to_spark(self, spark: pyspark.sql.SparkSession) -> pyspark.sql.DataFrame:
        """Return the events as a Spark DataFrame.

        Executors read the files, one task each, whenever the DataFrame is evaluated. They need this
        library and access to the store by the same URL.

        Args:
            spark: Spark session, version 4.0 or newer.
        """
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = pa.schema([field.with_type(_spark_type(field.type)) for field in self.schema])
        spark_schema = from_arrow_schema(schema, prefer_timestamp_ntz=True)
        if not self._tasks:
            return spark.createDataFrame([], spark_schema)
        tasks = [(json.dumps(dataclasses.asdict(task)),) for task in self._tasks]
        frame = spark.createDataFrame(tasks, "task string").repartition(len(tasks))
        decode = _SparkDecoder(self._store, self._decoder, schema)
        return frame.mapInArrow(decode, spark_schema)


class _SparkDecoder:
    """Function of a Spark task that decodes files."""

    def __init__(self, store: BucketStore, decoder: EventDecoder, schema: pa.Schema) -> None:
        # Copies, because what the originals keep is of this process.
        self._store, self._decoder = dataclasses.replace(store), dataclasses.replace(decoder)
        self._schema = schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for text in batch.column(0).to_pylist():
                task = _parse_task(json.loads(text))
                for found in decode_file(self._store, self._decoder, task, BATCH_ROWS):
                    yield found.cast(self._schema)


def _parse_task(found: Mapping[str, Any]) -> FileTask:
    spans = found["spans"]
    return FileTask(**{**found, "spans": spans and tuple((start, end) for start, end in spans)})


def decode_file(
    store: BucketStore, decoder: EventDecoder, task: FileTask, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield the selected events of a file on a store.

    Args:
        store: The root of the buckets.
        decoder: Decoder of the event type.
        task: The file, and which events to select.
        batch_rows: Maximum number of rows of a batch.

    Raises:
        DamagedAvroFile: The file is missing, or differs from its marker.
    """
    url = store.full_url(task.path)
    try:
        file: IO[bytes] = store.open(task.path)
    except FileNotFoundError as error:
        raise missing_file(url) from error
    with file:
        yield from decoder.decode(file, task, batch_rows, url)


def _spark_type(arrow_type: pa.DataType) -> pa.DataType:
    """Return the type that Spark reads: binary has no fixed size, and maps and lists have no null
    fields by themselves.
    """
    if pa.types.is_fixed_size_binary(arrow_type):
        return pa.binary()
    if pa.types.is_list(arrow_type):
        inner = arrow_type.value_field
        return pa.list_(inner.with_type(_spark_type(inner.type)))
    if pa.types.is_map(arrow_type):
        item = arrow_type.item_field
        return pa.map_(pa.string(), item.with_type(_spark_type(item.type)))
    if pa.types.is_struct(arrow_type):
        return pa.struct([field.with_type(_spark_type(field.type)) for field in arrow_type])
    return arrow_type
