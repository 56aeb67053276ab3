"""Where histories keep their ledgers: in memory, where the machine has a file system there."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.simulator.truth import make_template


@pytest.fixture(scope="session")
def ledgers() -> Iterator[Path]:
    """A folder for the ledgers of histories."""
    memory = Path("/dev/shm")
    folder = Path(
        tempfile.mkdtemp(prefix="hourmark-histories-", dir=memory if memory.is_dir() else None)
    )
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def template(ledgers: Path) -> Path:
    """A ledger that knows the types: each history begins with a copy."""
    return make_template(ledgers)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Closing logs every bucket and every alarm: thousands of histories of them."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
