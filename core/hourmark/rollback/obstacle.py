"""One thing that is in the way back."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Obstacle:
    """`where`: a file, a topic, a table; `to_do`: what takes it away, or that nothing does."""

    where: str
    seen: str
    to_do: str

    def __str__(self) -> str:
        return f"{self.where}: {self.seen}\n{'':2}do: {self.to_do}"
