"""Ends clients of Kafka without waiting for ever.

librdkafka ends a client once all of its threads have ended, and these wait for brokers: it has been seen to wait for a quarter of
an hour after one had come and gone. Nothing here is a member of a group, and nothing is left to be sent, so nobody needs that.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

_LOG = logging.getLogger(__name__)

END_S: Final = 30.0


def end_in_time(end: Callable[[], None], what: str, seconds: float = END_S) -> None:
    """Wait so long for `end` at most. Where it takes longer, it goes on in a thread of its own, and that is said."""
    ending = threading.Thread(target=end, name=f"end {what}", daemon=True)
    ending.start()
    ending.join(seconds)
    if ending.is_alive():
        _LOG.warning("%s has not ended within %.0f s, and is left to itself: is a broker away?", what, seconds)


def drop(last: list[Any]) -> None:
    """Let go of what is in the list, of which nobody else knows: it ends where that keeps nobody waiting."""
    threading.Thread(target=last.clear, name="drop", daemon=True).start()
