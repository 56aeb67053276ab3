"""Infers the template of log lines: a pattern with named fields, and a message at the end.

All records are read in parallel from left to right. At each position, the most specific part is
selected that 90% of the records have in common: the timestamp, a level, text in quotes or brackets,
a program with its process id, a number, punctuation, or a word that something specific follows. If
there is no common part, the message begins. If some records lack a part after the timestamp, this
part and all later parts are optional, so these records still match. If the level follows where they
lack the part, only the parts up to the level are optional, and these records continue behind it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from hourmark_declare.proposing.candidate import MESSAGE
from hourmark_declare.proposing.hosts import (
    are_full_names,
    are_hosts,
    are_machines,
    host_rank,
    is_constant_host,
)
from hourmark_declare.proposing.lines.enclosed_parts import enclosed_message
from hourmark_declare.proposing.lines.line_parts import PartRecognizer
from hourmark_declare.proposing.lines.message_keys import message_pattern
from hourmark_declare.proposing.lines.message_shape import infer_shape
from hourmark_declare.proposing.lines.part_search import (
    MOST,
    SPACE,
    LineCursor,
    LinePart,
    ReadingState,
)
from hourmark_declare.proposing.lines.trailing_columns import (
    find_delimiter,
    find_trailing_columns,
    message_with_columns,
)
from hourmark_declare.proposing.value_types import NUMBER_PATTERNS, infer_text_type
from hourmark_declare.proposing.vocabulary import are_levels, is_level

_NAME: Final = re.compile(r"[A-Za-z][\w-]{2,}")  # of a program, the same in all records
_KEYS: Final = frozenset(  # constants that are no names of programs
    (
        *("mon", "tue", "wed", "thu", "fri", "sat", "sun"),
        "level",
        "severity",
        "pid",
        "tid",
        "thread",
        "user",
        "node",
        "system",
    )
)
_PARTS_MAX: Final = 40
_OF_TEXTS: Final = ("component", "logger", "program", "context", "thread", "word", "label", "text")
_GROUP: Final = re.compile(r"\(\?P<\{(\d)\}>")  # where the name of a field is filled in


class Template(NamedTuple):
    """The structure that most records of a log file share: fields at the start, then a message.

    For records such as `2026-11-21 05:07:11 INFO [main] started`, the fields are the time, a level
    and a thread.

    Attributes:
        pattern: Regular expression for a whole record, with a named group for each field and the
            group `message`.
        start: Regular expression, without named groups, for the start of a record up to the end of
            its timestamp; empty if records have no timestamp.
        types: Maps the name of each field to its Avro type, in order. The time, the host and the
            message are not included.
        has_host: Whether `pattern` has the group `host`, which matches a host name.
        parts: Number of fields. The time, the message, and a host name before the message are not
            counted.
        has_empty: Whether an empty text stands for none, because a number is absent in some records.
        shares: Maps the name of each field before the message to the fraction of the records in
            which a value for it was found.
    """

    pattern: str
    start: str
    types: dict[str, str]
    has_host: bool
    parts: int
    has_empty: bool
    shares: dict[str, float]


def infer_template(
    texts: Sequence[str],
    times: Sequence[tuple[int, int] | None],
    time_pattern: str,
    *,
    multiline: bool,
) -> Template | None:
    """Infer the structure that at least 90% of the records of a log file have in common.

    The structure consists of fields, such as a time, a level or a process id, and a message.

    Args:
        texts: Records without trailing line feeds.
        times: Start and end index of the timestamp in each record; None for a record without one.
        time_pattern: Regular expression that matches these timestamps, without groups.
        multiline: Whether records consist of several lines.

    Returns:
        The structure; None if `texts` is empty. If the records have nothing in common, the message
        is the only field.
    """
    return _Inference(texts, times, time_pattern, multiline=multiline).infer() if texts else None


class _Piece(NamedTuple):
    text: str  # of the pattern
    lacking: bool  # whether some records lack it


class _Left(NamedTuple):
    piece: int  # number of the piece that the record lacks
    cursor: LineCursor  # where it would be


class _Inference:
    def __init__(
        self,
        texts: Sequence[str],
        times: Sequence[tuple[int, int] | None],
        time_pattern: str,
        *,
        multiline: bool,
    ) -> None:
        self._begin = [LineCursor(text, 0, time) for text, time in zip(texts, times, strict=True)]
        needed = MOST * len(texts)
        self._state = ReadingState(
            records=len(texts),
            needed=needed,
            time_pattern=time_pattern,
            has_time=sum(time is not None for time in times) >= needed,
            multiline=multiline,
        )
        self._names: dict[str, int] = {}
        self._start = ""
        self._fields = 0
        self._pieces_to_level = 0
        self._has_empty = False
        self._left: list[_Left] = []
        self._shares: dict[str, float] = {}

    def infer(self) -> Template:
        recognizer = PartRecognizer(self._state)
        cursors, before = self._begin, ""
        behind: list[_Piece] = []
        for _ in range(_PARTS_MAX):
            part = recognizer.next_part(cursors)
            if part is None:
                if self._state.has_time and not self._state.time_read:
                    before, cursors = self._jump(before, cursors)
                    continue
                break
            text, rejoined = self._rendered(part), list[LineCursor]()
            if (self._state.has_time and not self._state.time_read) or part.values.keys() == {
                "time"
            }:
                before += text
            else:
                if "level" in part.values:
                    rejoined = self._rejoin(text, behind)
                absent = [] if part.is_optional else self._absent(cursors, part, len(behind))
                self._left += absent
                behind.append(_Piece(text, bool(absent or (rejoined and self._left))))
            cursors = [
                cursor._replace(at=part.ends.get(number, cursor.at))
                for number, cursor in enumerate(cursors)
                if part.is_optional or number in part.ends
            ]
            cursors += rejoined
            if "level" in part.values:  # which half of the records may have
                self._state.needed = MOST * len(cursors)
                self._pieces_to_level = len(behind)
        return self._finished(before, behind, cursors)

    @staticmethod
    def _absent(cursors: Sequence[LineCursor], part: LinePart, piece: int) -> list[_Left]:
        return [_Left(piece, of) for n, of in enumerate(cursors) if n not in part.ends]

    def _rejoin(self, level: str, behind: list[_Piece]) -> list[LineCursor]:
        # Records that lack parts before the level, but have the level in their place: these parts
        # become one piece that is optional by itself. Space before the level is none of them.
        space = behind[-1].text if behind and _is_space(behind[-1]) else ""
        direct, spaced = (self._at_level(re.compile(before + level)) for before in ("", space))
        kept = behind[-1:] if len(spaced) > len(direct) else []
        ends = spaced if kept else direct
        first = min((self._left[n].piece for n in ends), default=len(behind))
        lacked = behind[first : len(behind) - len(kept)]
        if not lacked:
            return []
        behind[first:] = [_Piece(_nested(lacked), lacking=False), *kept]
        rejoined = [self._left[n].cursor._replace(at=end) for n, end in ends.items()]
        self._left = [one for n, one in enumerate(self._left) if n not in ends]
        return rejoined

    def _at_level(self, search: re.Pattern[str]) -> dict[int, int]:
        # Number of each record that was left behind at a level, and the end of the level.
        name = next(of for of in search.groupindex if of.startswith("level"))
        found = {n: search.match(of.cursor.text, of.cursor.at) for n, of in enumerate(self._left)}
        return {
            n: match.end()
            for n, match in found.items()
            if match is not None and is_level(match[name])
        }

    def _jump(self, before: str, cursors: list[LineCursor]) -> tuple[str, list[LineCursor]]:
        self._state.time_read = True
        timed = [of for of in cursors if of.time is not None]
        between = ".{0,120}?"
        texts = [of.text[of.at : of.time[0]] for of in timed if of.time is not None]
        if (shape := infer_shape(texts, {*self._state.types, *self._names})) is not None:
            between = shape.pattern
            self._state.types |= shape.types
            self._names |= dict.fromkeys(shape.types, 1)
            self._fields += len(shape.types)
        self._start = f"{_unnamed(before + between)}{self._state.time_pattern}"
        after = [of._replace(at=of.time[1]) for of in timed if of.time is not None]
        return f"{before}{between}(?P<time>{self._state.time_pattern})", after

    def _rendered(self, part: LinePart) -> str:
        if "time" in part.values:
            self._state.pending_key = None
            self._state.time_read, self._start = True, self._start + self._state.time_pattern
            return part.pattern
        names = []
        for name, values in part.values.items():
            present = [value for value in values if value is not None]
            if self._state.pending_key is not None and name not in ("level", "program"):
                name = re.sub(r"\W", "_", self._state.pending_key, flags=re.ASCII)
            names.append(self._named(name, present))
        if part.values:
            self._state.pending_key = None
        pattern = part.pattern
        pattern = _GROUP.sub(lambda group: f"(?P<{names[int(group[1])]}>", pattern)
        pattern = pattern.replace("{{", "{").replace("}}", "}")
        if not self._state.time_read and self._state.has_time:
            self._start += _unnamed(pattern)
        return pattern

    def _named(self, name: str, values: Sequence[str]) -> str:
        name = self._corrected(name, values)
        hosts = not {"level", "program"} & {*self._state.types}  # a host comes before these
        if (
            (
                name in ("word", "component", "logger")
                and hosts
                and "host" not in self._names
                and are_hosts(values)
            )
            or (
                name in ("component", "word")
                and "host" not in self._names
                and (are_machines(values) or is_constant_host(values))
            )
            or (name in _OF_TEXTS and "host" not in self._names and are_full_names(values))
        ):
            name = "host"
        elif name in ("component", "logger") and "host" in self._names and are_hosts(values):
            name = "node"
        elif host_rank(name) is not None and not all(of.isdigit() for of in values):
            name = "host" if "host" not in self._names else "log_host"
        elif name in ("word", "component") and self._is_program(values):
            name = "program" if "program" not in self._names else "word"
        elif name == "pid" and "pid" in self._names:
            name = "tid"
        if name in ("source", "file", "position", "event_id", "event_time", "time", MESSAGE):
            name = f"log_{name}"
        self._names[name] = self._names.get(name, 0) + 1
        plain, number = name, self._names[name]
        name = name if number == 1 else f"{plain}_{number}"
        while name in self._state.types:
            number += 1
            name = f"{plain}_{number}"
        if name != "host":
            self._state.types[name] = (
                infer_text_type(values)
                if name.rsplit("_", 1)[0]
                not in ("level", "level_letter", "date", "text", "address")
                else "string"
            )
            self._fields += 1
            written = sum(value not in ("", "-") for value in values)
            self._shares[name] = written / self._state.records
            self._has_empty |= "" in values and self._state.types[name] in NUMBER_PATTERNS
        return name

    @staticmethod
    def _is_program(values: Sequence[str]) -> bool:
        # Whether the same name is in all records.
        is_constant = len(set(values)) == 1 < len(values) and _NAME.fullmatch(values[0])
        return bool(is_constant) and values[0].lower() not in _KEYS

    def _corrected(self, name: str, values: Sequence[str]) -> str:
        # Levels and numbers have no other name, and no text has theirs.
        has_level = "level" in self._names
        if name not in _OF_TEXTS:
            return name
        if not has_level and are_levels(values):
            return "level"
        if name == "text":
            is_name = has_level and len({*values}) <= 10 and all(map(_NAME.fullmatch, values))
            return "component" if is_name else name
        return "number" if infer_text_type(values) in ("long", "double") else name

    def _finished(
        self, before: str, pieces: Sequence[_Piece], cursors: Sequence[LineCursor]
    ) -> Template:
        required = 0 if self._state.has_time else self._pieces_to_level or len(pieces)
        behind = "".join(of.text for of in pieces[:required])
        others = pieces[required:]
        if self._state.has_time or any(of.lacking for of in others):
            behind += _nested(others)
        else:
            behind += "".join(of.text for of in others)
        if "level_letter" in self._state.types and "level" not in self._state.types:
            self._state.types = {
                "level" if name == "level_letter" else name: of
                for name, of in self._state.types.items()
            }
            self._shares["level"] = self._shares.pop("level_letter")
            before, behind = (
                text.replace("(?P<level_letter>", "(?P<level>") for text in (before, behind)
            )
        message, keyed = self._message(cursors)
        for name, of_type in keyed.items():
            if name != "host":
                self._state.types[name] = of_type
        head, end = ("(?s)", r"\r?\n?") if self._state.multiline else ("", "")
        if self._state.has_time and any(not _is_space(of) for of in pieces):
            between = f"{behind}{SPACE}*"
        elif self._state.has_time:
            between = rf"[\])]?:?{SPACE}*"  # what may close a time
        else:
            between = behind
        pattern = f"{head}{before}{between}{end}{message}"
        return Template(
            pattern,
            self._start,
            self._state.types,
            "host" in self._names or "host" in keyed,
            self._fields + len(keyed),
            self._has_empty,
            self._shares,
        )

    def _message(self, cursors: Sequence[LineCursor]) -> tuple[str, dict[str, str]]:
        # The pattern of the message with what is behind it, and the types of keys in the message.
        rests, delimiter = [cursor.rest for cursor in cursors], find_delimiter(cursors)
        if not (columns := find_trailing_columns(rests, delimiter)):
            if (enclosed := enclosed_message(rests)) is not None:
                return enclosed, {}
            return message_pattern(
                rests, {*self._state.types, "time"}, multiline=self._state.multiline
            )
        names = [self._named(column.name, column.values) for column in columns]
        further = self._named("details", []) if self._state.multiline else ""
        return message_with_columns(columns, names, delimiter, further), {}


def _unnamed(pattern: str) -> str:
    return re.sub(r"\?P<\w+>", "?:", pattern)


def _is_space(piece: _Piece) -> bool:
    return piece.text in (f"{SPACE}+", f"{SPACE}*")


def _nested(pieces: Sequence[_Piece]) -> str:
    # Pieces of which each may be absent together with all behind it, so that a record that lacks
    # the last one has the others. White space that some lack belongs to the piece before it.
    texts: list[str] = []
    groups = 0
    for number, piece in enumerate(pieces):
        if piece.lacking or number == 0:
            with_last = bool(texts) and _is_space(piece)
            if texts[-2:-1] != ["(?:"] or not with_last:
                texts.insert(len(texts) - with_last, "(?:")
                groups += 1
        texts.append(piece.text)
    return "".join(texts) + ")?" * groups
