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
    """Return the folder of type declarations that the fixture `hourmark_stack` uses.

    Override this fixture in your `conftest.py` to use your own declarations.

    Returns:
        None, which selects the example types.
    """
    return None


@pytest.fixture(scope="session")
def hourmark_stack(hourmark_types: Path | None) -> Iterator[Stack]:
    """Provide a complete Hourmark stack in a container, shared by all tests of the session.

    The stack starts when the first test requests it, and is removed at the end of the session.
    Tests are skipped if there is no container engine.

    Args:
        hourmark_types: Folder of type declarations; None for the example types.

    Yields:
        The running stack.
    """
    with ExitStack() as ended:
        try:
            started = ended.enter_context(stack(hourmark_types))
        except NoEngine as error:
            pytest.skip(str(error))
        yield started
