"""One thing that is in the way back; or that there is nothing to look at."""

from __future__ import annotations

import dataclasses

from hourmark.errors import HourmarkError


@dataclasses.dataclass(frozen=True, slots=True)
class Obstacle:
    """`where`: a file, a topic, a table; `to_do`: what takes it away, or that nothing does."""

    where: str
    seen: str
    to_do: str

    def __str__(self) -> str:
        return f"{self.where}: {self.seen}\n{'':2}do: {self.to_do}"


class NothingToCheck(HourmarkError):
    """What a room would look at is not here, and where that was looked for.

    Whether it is elsewhere, it cannot know.
    """
