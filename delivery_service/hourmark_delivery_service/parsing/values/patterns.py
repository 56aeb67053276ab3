"""Patterns with named groups over whole lines: RE2 on bytes, in time linear in the line's length.

RE2 interprets the pattern and the line as Latin-1, one character per byte, so any bytes can be
matched: `.` matches every byte but LF. Non-ASCII characters of a pattern match their UTF-8 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

import re2


class LinePattern:
    """A compiled RE2 pattern that is matched against whole lines of bytes.

    Matching takes linear time in the length of the line. `.` matches every byte except LF.

    Args:
        pattern: RE2 pattern, which may have named groups.
        setting: Name of the setting that contains the pattern, for error messages.

    Attributes:
        groups: Maps the name of each named group to its index.

    Raises:
        ValueError: If RE2 does not accept the pattern.
    """

    def __init__(self, pattern: str, setting: str = "line.pattern") -> None:
        options = re2.Options()
        options.encoding = re2.Options.Encoding.LATIN1
        options.log_errors = False
        try:
            self._compiled = re2.compile(pattern.encode(), options)
        except re2.error as error:
            reason = (
                error.args[0].decode(errors="replace")
                if error.args and isinstance(error.args[0], bytes)
                else error
            )
            raise ValueError(f"{setting}: RE2 does not accept it: {reason}") from error
        self.groups: Mapping[str, int] = {
            name.decode(): index for name, index in self._compiled.groupindex.items()
        }

    def match(self, line: bytes) -> tuple[bytes | None, ...] | None:
        """Match a whole line against the pattern.

        Args:
            line: Line without its line feed.

        Returns:
            A tuple of the whole line and the matched text of each group. The item is None for a
            group that did not participate in the match. Returns None instead of a tuple if the line
            does not match.
        """
        match = self._compiled.fullmatch(line)
        return None if match is None else (line, *match.groups())

    def replace_all(self, text: bytes, replacement: bytes) -> bytes:
        """Return `text` with all matches of the pattern replaced.

        Args:
            text: Text to search.
            replacement: Literal replacement, without references to groups.
        """
        changed: bytes = self._compiled.sub(lambda _: replacement, text)
        return changed
