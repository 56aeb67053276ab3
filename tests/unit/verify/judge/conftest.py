"""A small right world, and HDFS over it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.judged.webhdfs_server import serve
from tests.support.judged.world import World, small_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = small_world(tmp_path)
    with serve(made.hdfs) as made.webhdfs:
        yield made
