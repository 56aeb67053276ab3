"""A micro-batch's planned end offsets, as Spark wrote them before it ran the batch.

Transaction markers leave gaps, so "the last row + 1" is not the end of a batch. Spark's offset log (`offsets/<batch>` in the
checkpoint: a version line, a metadata line, then one line of JSON per source) says what was planned.
"""

from __future__ import annotations

import json
from pathlib import Path

from etl.errors import EtlStop
from hourmark.kafka import Partition


def planned_ends(checkpoint: Path, batch_id: int) -> dict[Partition, int]:
    """For each topic-partition the offset after the batch's last."""
    log = checkpoint / "offsets" / str(batch_id)
    lines = log.read_text().splitlines()
    if len(lines) != 3 or lines[0] != "v1":
        raise EtlStop(f"{log} is not an offset log of the form this software knows (v1, one source); it has {len(lines)} lines")
    return {
        Partition(topic, int(partition)): int(offset)
        for topic, ends in json.loads(lines[2]).items()
        for partition, offset in ends.items()
    }
