"""Check a commit message, as git's hook commit-msg: `python tools/commit_message.py FILE`.

The subject says what, in at most 72 characters; after an empty line the body says why. Whether it
does say why, readers judge.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

SUBJECT_MAX: Final = 72
_SCISSORS: Final = "# ------------------------ >8 ------------------------"
# git writes these, or folds them into another commit.
_OF_GIT: Final = ("Merge ", "fixup! ", "squash! ", "amend! ")


def problems(message: str) -> Iterator[str]:
    """Yield each problem of a commit message with its fix; nothing if the message is valid."""
    lines = [
        line.rstrip()
        for line in message.partition(_SCISSORS)[0].splitlines()
        if not line.startswith("#")
    ]
    subject, *rest = "\n".join(lines).strip().splitlines() or [""]
    if subject.startswith(_OF_GIT):
        return
    if not subject:
        yield "the subject is missing: state what is changed"
    if len(subject) > SUBJECT_MAX:
        yield (
            f"the subject has {len(subject)} characters: use at most {SUBJECT_MAX}, and put "
            "details into the body"
        )
    if rest and rest[0]:
        yield ("the second line is not empty, so git treats it as part of the subject")
    if not any(rest[1:]):
        yield "the body is missing: after an empty line, state the reason"


def main(arguments: Sequence[str]) -> int:
    """Check the commit message in a file, print its problems to stderr, and return the exit code.

    Args:
        arguments: Command-line arguments: the path of the file.

    Returns:
        0 if the message is valid, else 1.
    """
    (file,) = arguments
    found = list(problems(Path(file).read_text()))
    for problem in found:
        print(f"commit message: {problem}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
