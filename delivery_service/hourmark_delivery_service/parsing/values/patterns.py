"""Named-group patterns over whole lines: RE2 on bytes, in time linear in the line's length.

RE2 reads pattern and line as Latin-1, a byte a character, so any bytes can be matched: `.` is every
byte but LF. A pattern's own characters beyond ASCII stand for their UTF-8 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

import re2


class LinePattern:
    """One compiled pattern. ValueError if RE2 does not accept it."""

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
        """The texts of all groups, the whole line first, None for one that took no part; None if
        the line does not match.
        """
        match = self._compiled.fullmatch(line)
        return None if match is None else (line, *match.groups())

    def replace_all(self, text: bytes, replacement: bytes) -> bytes:
        """`text`, with `by` for all that matches, wherever it stands."""
        changed: bytes = self._compiled.sub(lambda _: replacement, text)
        return changed
