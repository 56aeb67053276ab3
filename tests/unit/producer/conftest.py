"""What the tailer's tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.tailer.host import Host
from tests.support.tailer.recorder import Recorder, recording


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with recording() as recorder:
        yield recorder


@pytest.fixture
def host(tmp_path: Path, recorder: Recorder) -> Host:
    """A log host whose source `app` is `logs/app.log*`, with a tailer that is not running."""
    return Host(tmp_path, recorder.url)
