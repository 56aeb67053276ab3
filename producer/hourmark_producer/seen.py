"""What a scan came to."""

from __future__ import annotations

import dataclasses

from hourmark_producer.files import TrackedFile


@dataclasses.dataclass(slots=True)
class Seen:
    """`complete`: the names of the sources that were fully seen. `problems`: path → why not, per source."""

    complete: set[str] = dataclasses.field(default_factory=set)
    problems: dict[str, dict[str, OSError]] = dataclasses.field(default_factory=dict)
    folders: set[str] = dataclasses.field(default_factory=set)  # that were listed, or where a file was looked for
    astir: list[TrackedFile] = dataclasses.field(default_factory=list)  # all but those at rest
    has_waiting: bool = False  # files wait for their turn to be opened

    def all_problems(self) -> dict[str, OSError]:
        """Of all sources, by path."""
        return {path: problem for problems in self.problems.values() for path, problem in problems.items()}
