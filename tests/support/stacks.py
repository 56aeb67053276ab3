"""The stack of a test session: its own, or the one that `HOURMARK_TEST_HOME` names."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from hourmark_infra.stack import LocalStack


@contextlib.contextmanager
def running_stack(create: Callable[[], LocalStack]) -> Iterator[LocalStack]:
    """A stack whose servers run: what `HOURMARK_TEST_HOME` names, which is left running, else what
    `create` makes. The logs of the latter stay, for whoever asks what happened.
    """
    if named := os.environ.get("HOURMARK_TEST_HOME"):
        existing = LocalStack.load(Path(named))
        existing.up()
        yield existing
        return
    made = create()
    try:
        made.up()
        yield made
    finally:
        made.down()
        shutil.rmtree(made.layout.data, ignore_errors=True)
