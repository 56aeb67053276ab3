"""Containers from single datums."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hourmark_etl.buckets.avro_container import ContainerWriter


def append_all(writer: ContainerWriter, datums: Iterable[bytes]) -> None:
    """In their order, as one run."""
    given = list(datums)
    writer.append_run(memoryview(b"".join(given)), np.cumsum([0, *map(len, given)]))
