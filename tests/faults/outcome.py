"""What tests of faults share: their marks, and how an hour must have closed after any fault that
takes nothing for good.
"""

from __future__ import annotations

import pytest
from tests.support.crash import CrashOrder
from tests.support.etl_scene import DUPLICATES, EVENTS, ON_TIME, Scene

from hourmark.records.manifest import Manifest

LONG = [pytest.mark.stack, pytest.mark.long, pytest.mark.timeout(3600)]


def assert_whole(closed: Manifest, *, hours_before: int = 0) -> None:
    """All that was promised, once, and proved.

    `hours_before`: so many hours before it stayed without events and may close with it; the late
    event is then in the first of them.
    """
    late = sum(closed.late.values())
    found = (closed.events - late, late, closed.duplicates_removed, closed.grade.value)
    whole = (ON_TIME, EVENTS - ON_TIME, DUPLICATES, "proved")
    late_before = (ON_TIME, 0, DUPLICATES, "proved")
    assert found == whole or (hours_before and found == late_before), f"{closed.hour}: {found}"


def assert_a_paused_closer_changes_nothing(running: Scene, pause: CrashOrder) -> None:
    """A closer that is paused at this step, and wakes after another has published, ends."""
    running.run.revive()
    running.run.order(pause)
    hour = running.begin_hour()
    running.crashed(pause)
    with running.run.duplicate() as duplicate:
        assert running.closed(hour, by=duplicate).events == EVENTS  # and remembered, file by file
        running.run.wake()
        running.ended()
        running.content_is_as_promised()
        assert duplicate.running()
