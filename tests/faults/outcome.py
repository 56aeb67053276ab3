"""What tests of faults share: their marks, and how an hour must have closed after any fault that
takes nothing for good.
"""

from __future__ import annotations

import pytest
from tests.support.etl_scene import DUPLICATES, EVENTS

from hourmark.records.manifest import Manifest

LONG = [pytest.mark.stack, pytest.mark.long, pytest.mark.timeout(3600)]


def assert_whole(closed: Manifest) -> None:
    """All that was promised, once, and proved."""
    found = (closed.events, closed.duplicates_removed, closed.grade.value)
    assert found == (EVENTS, DUPLICATES, "proved"), f"{closed.hour}: {found}, {closed.evidence}"
