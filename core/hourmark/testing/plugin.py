"""Fixtures for pytest: `pytest_plugins = ["hourmark.testing.plugin"]` in conftest.py, beside the
tests' root.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hourmark.testing import NoEngine, Stack, stack


@pytest.fixture(scope="session")
def hourmark_types() -> Path | None:
    """The folder of types that `hourmark_stack` has; a fixture of this name in conftest.py names
    another.
    """
    return None


@pytest.fixture(scope="session")
def hourmark_stack(hourmark_types: Path | None) -> Iterator[Stack]:
    """A whole stack, one for the session. Where there is no container engine, what asks for it is
    skipped, saying so.
    """
    with ExitStack() as ended:
        try:
            started = ended.enter_context(stack(hourmark_types))
        except NoEngine as error:
            pytest.skip(str(error))
        yield started
