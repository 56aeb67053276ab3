"""One format for every room, and every room's words are heard."""

from __future__ import annotations

import io
import logging
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hourmark.log import set_up_logging

_TREE = Path(__file__).parents[3]
# The compiled module logs nothing, and the reader library runs in programs of its users.
SILENT = ("hourmark_native", "hourmark_reading")
ROOMS = [
    path.parent.name
    for path in _TREE.glob("*/hourmark*/__init__.py")
    if path.parent.name not in SILENT
]


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    loggers = {name: logging.getLogger(name) for name in ROOMS}
    levels, handlers, level = (
        {name: one.level for name, one in loggers.items()},
        root.handlers[:],
        root.level,
    )
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, one in loggers.items():
        one.setLevel(levels[name])


def test_every_room_is_heard_from_the_level_on_and_libraries_from_warning_on() -> None:
    assert len(ROOMS) == 9
    set_up_logging("info")
    for room in ROOMS:
        logger = logging.getLogger(f"{room}.some.module")
        assert logger.isEnabledFor(logging.INFO) and not logger.isEnabledFor(logging.DEBUG), room
    assert not logging.getLogger("alembic").isEnabledFor(logging.INFO)


def test_a_line_has_the_time_in_utc_its_level_and_the_logger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        set_up_logging("info")
        logging.getLogger("hourmark_etl.driver").info("it %s", "works")
        record_s = time.time()
    finally:
        monkeypatch.undo()
        time.tzset()
    match = re.fullmatch(
        r"(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}):\d{2}\.\d{3}Z INFO hourmark_etl.driver: it works\n",
        out.getvalue(),
    )
    assert match, out.getvalue()
    assert match[1] in {
        time.strftime("%Y-%m-%dT%H:%M", time.gmtime(s)) for s in (record_s, record_s - 5)
    }


def test_every_logger_has_its_module_s_name() -> None:
    named = [
        found
        for path in _TREE.glob("*/hourmark*/**/*.py")
        for found in re.findall(r" = .*getLogger\((.*)\)", path.read_text())
    ]
    assert len(named) > 30
    assert {name for name in named if name} == {
        "__name__",
        'f"{__name__}.silent"',
    }  # of "": the root, which has none
