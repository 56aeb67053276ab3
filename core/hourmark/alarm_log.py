"""Tells alarms in the log: each once when it begins, and once when it is over."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from hourmark.alarm import Alarm

_LOG = logging.getLogger(__name__)


class AlarmLog:
    """`alarms`: those that stand, as told last."""

    def __init__(self) -> None:
        self.alarms: list[Alarm] = []

    def tell(self, alarms: Sequence[Alarm]) -> None:
        """These stand now, and no others."""
        now, before = ({(a.name, a.subject): a for a in some} for some in (alarms, self.alarms))
        for key, alarm in now.items():
            if key not in before:
                _LOG.error("ALARM %s", alarm)
        for key in before:
            if key not in now:
                _LOG.warning("over: %s of %s", *key)
        self.alarms = list(alarms)
