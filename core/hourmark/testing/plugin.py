"""Pytest fixtures that start a stack; enable them with `pytest_plugins` in the top-level conftest.py:

pytest_plugins = ["hourmark.testing.plugin"]
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hourmark.testing import NoEngine, Stack, stack


@pytest.fixture(scope="session")
def hourmark_types() -> Path | None:
    """Return the folder of type declarations for `hourmark_stack`; override it to use your own.

    None selects the example types.
    """
    return None


@pytest.fixture(scope="session")
def hourmark_stack(hourmark_types: Path | None) -> Iterator[Stack]:
    """Yield a complete Hourmark stack that all tests of the session share.

    Tests are skipped if there is no container engine.

    Args:
        hourmark_types: Folder of type declarations; None for the example types.
    """
    with ExitStack() as ended:
        try:
            started = ended.enter_context(stack(hourmark_types))
        except NoEngine as error:
            pytest.skip(str(error))
        yield started
