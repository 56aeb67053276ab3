"""CPU time of writing buckets: encoded datums are copied to Avro containers without decoding.

    python -m bench.containers [--json]

For comparison, the same run encodes the same records with `fastavro.writer` and the same codec. The
ratio shows what copying without decoding saves. Both codecs of `etl.avro_codec` are measured, with
the size of the file per record.
"""

from __future__ import annotations

import io
import json
import statistics
from typing import get_args

import fastavro
import numpy as np

from bench.structuring import run, seconds
from hourmark.avro.datum import Datum
from hourmark.config.groups import AvroCodec
from hourmark_etl.buckets.avro_container import ContainerWriter

RECORDS = 20_000
SCHEMA = {
    "type": "record",
    "name": "plain",
    "fields": [
        {"name": "page", "type": "string"},
        {"name": "milliseconds", "type": "long"},
        {"name": "agent", "type": "string"},
    ],
}


def measure() -> dict[str, float]:
    """Return the median CPU time per record of both ways in microseconds, their ratio, and bytes."""
    schema = fastavro.parse_schema(SCHEMA)
    records = [
        {"page": f"/shelf/{n % 97}/{n}", "milliseconds": n, "agent": f"{n * 7919:060d}"}
        for n in range(RECORDS)
    ]
    datum = Datum(SCHEMA)
    datums = [datum.encode(record) for record in records]
    offsets = np.cumsum([0, *map(len, datums)])
    found: dict[str, float] = {}
    for codec in get_args(AvroCodec):

        def copied(codec: AvroCodec = codec) -> io.BytesIO:
            file = io.BytesIO()
            writer = ContainerWriter(file, json.dumps(SCHEMA), codec=codec)
            writer.append_run(memoryview(b"".join(datums)), offsets)
            writer.close()
            return file

        def encoded(codec: AvroCodec = codec) -> io.BytesIO:
            file = io.BytesIO()
            fastavro.writer(file, schema, records, codec=codec)
            return file

        content = copied().getvalue()
        assert list(fastavro.reader(io.BytesIO(content))) == records
        ours = statistics.median(seconds(copied)) / RECORDS * 1e6
        theirs = statistics.median(seconds(encoded)) / RECORDS * 1e6
        found |= {
            f"{codec}_copied_us": round(ours, 2),
            f"{codec}_fastavro_writer_us": round(theirs, 2),
            f"{codec}_ratio": round(ours / theirs, 2),
            f"{codec}_bytes": round(len(content) / RECORDS, 1),
        }
    return found


if __name__ == "__main__":
    run(__doc__, measure)
