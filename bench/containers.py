"""CPU time of writing buckets: encoded datums are copied to Avro containers without decoding.

    python -m bench.containers [--json]

For comparison, the same run encodes the same records with `fastavro.writer`; both use the codec
zstandard. The ratio shows what copying without decoding saves.
"""

from __future__ import annotations

import io
import json
import statistics

import fastavro
import numpy as np

from bench.structuring import run, seconds
from hourmark.avro.datum import Datum
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
    """Return the median CPU time per record of both ways in microseconds, and their ratio."""
    schema = fastavro.parse_schema(SCHEMA)
    records = [
        {"page": f"/shelf/{n % 97}/{n}", "milliseconds": n, "agent": f"{n * 7919:060d}"}
        for n in range(RECORDS)
    ]
    datum = Datum(SCHEMA)
    datums = [datum.encode(record) for record in records]

    def copied() -> io.BytesIO:
        file = io.BytesIO()
        writer = ContainerWriter(file, json.dumps(SCHEMA))
        writer.append_run(memoryview(b"".join(datums)), np.cumsum([0, *map(len, datums)]))
        writer.close()
        return file

    def encoded() -> io.BytesIO:
        file = io.BytesIO()
        fastavro.writer(file, schema, records, codec="zstandard")
        return file

    assert list(fastavro.reader(io.BytesIO(copied().getvalue()))) == records
    ours = statistics.median(seconds(copied)) / RECORDS * 1e6
    theirs = statistics.median(seconds(encoded)) / RECORDS * 1e6
    return {
        "copied_us": round(ours, 2),
        "fastavro_writer_us": round(theirs, 2),
        "ratio": round(ours / theirs, 2),
    }


if __name__ == "__main__":
    run(__doc__, measure)
