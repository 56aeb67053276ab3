"""One obstacle to a rollback, and the error for a component that has nothing to check."""

from __future__ import annotations

import dataclasses

from hourmark.errors import HourmarkError


@dataclasses.dataclass(frozen=True, slots=True)
class Obstacle:
    """A condition that prevents an older version from running with the data of this version.

    Attributes:
        where: The file, Kafka topic or database table that the older version cannot use.
        seen: Description of the content that the older version cannot use.
        to_do: How to remove the obstacle, or a statement that it cannot be removed.
    """

    where: str
    seen: str
    to_do: str

    def __str__(self) -> str:
        return f"{self.where}: {self.seen}\n{'':2}do: {self.to_do}"


class NothingToCheck(HourmarkError):
    """A component has no data on this machine that a rollback check could examine.

    The message lists the locations that were searched. The data may be on another machine.
    """
