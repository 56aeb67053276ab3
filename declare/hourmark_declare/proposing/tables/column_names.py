"""Names the columns of tables: by a header row, or by what is in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from hourmark.avro.fields import FIELD_NAME
from hourmark.avro.framing import ENVELOPE_NAMES
from hourmark_declare.proposing.candidate import MESSAGE
from hourmark_declare.proposing.hosts import are_hosts, are_machines, is_constant_host
from hourmark_declare.proposing.value_types import infer_text_type
from hourmark_declare.proposing.vocabulary import REQUEST, are_level_letters, is_level

_ADDRESS: Final = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?|-")
_ORIGIN: Final = re.compile(
    r"[A-Za-z_][\w$-]*(?:[./:]+[A-Za-z_$][\w$-]*)+(?::\d+)?|[A-Z][A-Za-z]*_\w*"
)
_HOSTS_MAX: Final = 10  # more names such as `abc12` are rather those of users or sessions
_COMPONENT: Final = re.compile(r"[a-z][a-z_]{3,}")
_CLASS: Final = re.compile(r"[A-Za-z][A-Za-z_-]*")
_AGENT: Final = re.compile(r"(?:Mozilla|curl|Wget|python|Go-http|kube-probe|ELB-|S3Console)\S*.*|-")


class Column(NamedTuple):
    """A column of a table in a log file, and the corresponding event field.

    Attributes:
        name: Name of the field.
        values: Values of the column in the sample, one for each row, without quotes or brackets
            that enclose all values.
        wrap: Character that encloses all values in the file: `"` for quotes or `[` for brackets;
            empty if there is none.
        width: Number of columns in the file: 2 if a date and a time of day in adjacent columns were
            combined, otherwise 1.
        unit: Unit after each number in the file, with the space before it, as in `45 %`; empty if
            there is none.
        absent: Texts in the file that stand for no number, such as `N/A`; in `values`, they are
            empty.
    """

    name: str
    values: list[str]
    wrap: str
    width: int = 1
    unit: str = ""
    absent: tuple[str, ...] = ()


def guess_names(columns: Sequence[Column]) -> list[Column]:
    """Name the columns of a table without a header row, based on their values.

    A column is named, for example, `level`, `client` or `host`. Other columns are named `column_1`
    and so on.

    Args:
        columns: All columns, in order. Their names are ignored.

    Returns:
        Copies of the columns with different names, in the same order.
    """
    taken: set[str] = set()
    named: list[Column] = []
    for number, column in enumerate(columns, 1):
        name = _guess(column, taken, [of.name for of in named], is_last=number == len(columns))
        name = name if name and name not in taken else f"column_{number}"
        taken.add(name)
        named.append(column._replace(name=name))
    return named


def _guess(column: Column, taken: set[str], before: Sequence[str], *, is_last: bool) -> str:
    values = column.values
    if all(is_level(value) for value in values):
        return "level"
    if "level" not in taken and not column.wrap and _are_level_letters(values):
        return "level"
    quoted = column.wrap == '"' and set(values) != {"-"}
    if quoted and all(REQUEST.fullmatch(value) for value in values):
        return "request"
    codes = all(re.fullmatch(r"[1-5]\d\d", value) for value in values)
    if codes and "request" in taken and "status" not in taken:
        return "status"
    if before and before[-1] == "status" and infer_text_type(values) == "long":
        return "bytes"
    if all(_ADDRESS.fullmatch(value) for value in values) and set(values) != {"-"}:
        return "client"
    if quoted and all(_AGENT.fullmatch(value) for value in values):
        return "agent"
    if is_last and not column.wrap and 10 * sum(" " in value for value in values) > 3 * len(values):
        return MESSAGE
    return _guess_origin(column, taken, before, is_last=is_last)


def _are_level_letters(values: Sequence[str]) -> bool:
    # At least two usual letters are needed: other columns have letters, too.
    usual = {value.upper() for value in values} & {*"IWED"}
    return len(usual) >= 2 and are_level_letters(values)


def _guess_origin(column: Column, taken: set[str], before: Sequence[str], *, is_last: bool) -> str:
    # The host or the part of a program that wrote the line.
    values = column.values
    if all(_ORIGIN.fullmatch(value) for value in values) and 2 * len(set(values)) <= len(values):
        return "logger"
    if "host" not in taken and column.wrap != "[" and is_constant_host(values):
        return "host"
    if not column.wrap and "host" not in taken and are_machines(values):
        return "host"
    is_plain = all(re.fullmatch(r"[A-Za-z]+\d+", value) for value in values)  # or a user: `ann7`
    is_first = not column.wrap and len(before) < 3 and "host" not in taken
    if is_first and are_hosts(values) and (len(set(values)) <= _HOSTS_MAX or not is_plain):
        return "host"
    if "level" in taken and all(_CLASS.fullmatch(value) for value in values) and not is_last:
        return "component" if 1 < len(set(values)) <= max(0.1 * len(values), 3) else ""
    names = not column.wrap and all(_COMPONENT.fullmatch(value) for value in values)
    return "component" if names and 1 < len(set(values)) <= 0.1 * len(values) else ""


def unique_names(names: Sequence[str]) -> list[str]:
    """Convert the names in a header row to valid and distinct field names.

    Args:
        names: Names of all columns, in order.
    """
    found: list[str] = []
    for number, name in enumerate(names, 1):
        plain = re.sub(r"\W+", "_", name.strip(), flags=re.ASCII).strip("_") or f"column_{number}"
        plain = plain if FIELD_NAME.fullmatch(plain) else f"column_{plain}"
        if plain in ENVELOPE_NAMES and plain != "host":
            plain = f"log_{plain}"
        found.append(f"{plain}_{number}" if plain in found else plain)
    return found
