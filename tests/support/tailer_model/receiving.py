"""What was written to the sources that receive: systemd's journal, and syslog over UDP.

What must come, and what must be told.

Where the tailer cannot know what it did not receive, it must say so: as *unknown losses*, before it
claims that the source is caught up. A report that was made before is the least that it has said, so
what it owes is counted from there.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Collection, Set
from typing import Final

from hourmark.records.host_reports import SourceReport

JOURNAL: Final = "journal"
SYSLOG: Final = "syslog"
RECEIVED: Final = (JOURNAL, SYSLOG)
# so long an entry may be on its way through journalctl when the journal is called caught up
JOURNAL_MS: Final = 2_000
_NUMBER: Final = re.compile(r"(?:<13>)?(\d{8}) ")
_FILLER: Final = "abcdefghijklmnopqrstuvwxyz" * 4


@dataclasses.dataclass(frozen=True, slots=True)
class _Owed:
    """From this time on claims must come with at least so many unknown losses; where there are
    messages, until all have come.
    """

    since_ms: int
    least: int
    unless_come: frozenset[int]

    def is_due(self, claim_ms: int, came: Set[int]) -> bool:
        return self.since_ms < claim_ms and (not self.unless_come or not self.unless_come <= came)


class Sent:
    """To one source.

    `late_ms`: so much later than it was written a message may be missing from what a claim covers.
    """

    def __init__(self, name: str, late_ms: int = 0) -> None:
        self.name, self._late_ms = name, late_ms
        self.count = 0
        self.came: set[int] = set()
        self.awaited: dict[int, int] = {}  # messages that must come: when each was written
        self.dropped = 0  # so many of them need not
        self.unknown = 0  # losses that were reported so far
        self.unknown_max = 0  # that there can be
        self._owed: list[_Owed] = []

    def texts(self, count: int) -> list[str]:
        """New messages, as no other is."""
        first, self.count = self.count, self.count + count
        return [_text(self.name, number) for number in range(first, self.count)]

    def wrote(self, count: int, at_ms: int) -> None:
        """The latest messages were there for the tailer then."""
        self.awaited |= {
            number: at_ms
            for number in range(self.count - count, self.count)
            if number not in self.came
        }

    def delivered(self, content: bytes) -> None:
        """A service has these lines."""
        for number in numbers_of(self.name, content):
            self.came.add(number)
            self.awaited.pop(number, None)

    def owe(self, occasions: int, at_ms: int, unless_come: Collection[int] = ()) -> None:
        """So many losses happened that the tailer must report when it claims anything past this
        time; or only where not all of these messages come.
        """
        self._owed.append(_Owed(at_ms, self.unknown + occasions, frozenset(unless_come)))

    def forgive(self) -> None:
        """The tailer does not know any more what it reported before."""
        self.unknown, self._owed = 0, []

    def forget(self) -> None:
        """What was written so far may come, or not; and nothing is owed for it."""
        self.awaited.clear()
        self.dropped, self._owed = 0, []

    def findings_of(self, said: SourceReport, claim_ms: int) -> list[str]:
        """What is wrong with a claim."""
        missing = [
            number for number, at_ms in self.awaited.items() if at_ms + self._late_ms < claim_ms
        ]
        owed = max((one.least for one in self._owed if one.is_due(claim_ms, self.came)), default=0)
        found = []
        if len(missing) > self.dropped:
            found.append(
                f"{self.name} claims to be caught up at {claim_ms}; {len(missing)} messages "
                "that were written before are not "
                f"delivered, and {self.dropped} were dropped; the first is {missing[0]}"
            )
        if said.unknown_losses < owed:
            found.append(
                f"{self.name} claims to be caught up at {claim_ms}, and says that "
                f"{said.unknown_losses} losses are unknown, "
                f"there were {owed} or more"
            )
        self.unknown = max(self.unknown, said.unknown_losses)
        return found


def numbers_of(name: str, content: bytes) -> list[int]:
    """Of the messages in these lines; -1 for what was never sent."""
    return [_number(name, line.decode()) for line in content.split(b"\n")[:-1]]


def _number(name: str, line: str) -> int:
    text = json.loads(line).get("message", "") if name == JOURNAL else line
    match = _NUMBER.match(text)
    return int(match[1]) if match and text == _text(name, int(match[1])) else -1


def _text(name: str, number: int) -> str:
    return f"{'<13>' if name == SYSLOG else ''}{number:08d} {_FILLER[: number * 37 % len(_FILLER)]}"
