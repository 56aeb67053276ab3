"""Reference program of the delivery benchmark: a bare confluent-kafka producer.

    python -m bench.delivery_bare SETTINGS RECORDS TOPIC

SETTINGS is a JSON file with the service's own librdkafka settings. RECORDS contains keys and
values, each preceded by its size as 4 bytes, which are loaded to memory first. Every delivery
report is counted. The program prints one JSON object: records, CPU seconds of all threads from the
first call to the last report, and elapsed seconds.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from confluent_kafka import KafkaError, Producer

BATCH = 1024  # as the service
UNDER_WAY_MAX = 32 * 1024


def main() -> None:
    """Run the command line."""
    settings, records = (
        json.loads(Path(sys.argv[1]).read_text()),
        _read(Path(sys.argv[2]).read_bytes()),
    )
    producer = Producer(settings)
    producer.list_topics(sys.argv[3], timeout=30)
    delivered = 0

    def report(error: KafkaError | None, _: object) -> None:
        nonlocal delivered
        assert error is None, error
        delivered += 1

    began, began_cpu = time.monotonic(), _cpu_s()
    for at in range(0, len(records), BATCH):
        messages = [{"key": key, "value": value} for key, value in records[at : at + BATCH]]
        assert producer.produce_batch(sys.argv[3], messages, on_delivery=report) == len(messages)
        producer.poll(0)
        while len(producer) > UNDER_WAY_MAX:
            producer.poll(0.01)
    producer.flush()
    cpu_s, seconds = _cpu_s() - began_cpu, time.monotonic() - began
    assert delivered == len(records)
    print(json.dumps({"records": delivered, "cpu_seconds": cpu_s, "seconds": seconds}))


def write(path: Path, records: list[tuple[bytes, bytes]]) -> None:
    """Write a RECORDS file at `path`."""
    with path.open("wb") as file:
        for record in records:
            for part in record:
                file.write(len(part).to_bytes(4, "big") + part)


def _read(content: bytes) -> list[tuple[bytes, bytes]]:
    parts, at = [], 0
    while at < len(content):
        size = int.from_bytes(content[at : at + 4], "big")
        parts.append(content[at + 4 : at + 4 + size])
        at += 4 + size
    return list(zip(parts[::2], parts[1::2], strict=True))


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
