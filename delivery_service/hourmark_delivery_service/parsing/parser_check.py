"""Verification that parsing gives its recorded results with the installed libraries and Python.

`vectors/<parser>.json`, created once per parser version by `tools.keep_parser_vectors`, contains
rules revisions, unusual ranges and batches, and a digest of their results. The service parses them
at startup. A library that parses a float or a pattern differently is detected before any record is
written.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hourmark.errors import Finding
from hourmark.records.ranges import ByteRange, Part
from hourmark.rules.revision import RulesBook
from hourmark_delivery_service.parsing.batch import Batch, BatchParser
from hourmark_delivery_service.parsing.compiled import CompiledRules
from hourmark_delivery_service.parsing.parsers import PARSERS
from hourmark_delivery_service.parsing.range import parse_range
from hourmark_delivery_service.parsing.records import ParsedRange

_LOG = logging.getLogger(__name__)

EXTRAS: Final = (
    "2-extras",
)  # of ranges with more headers than those of 0.2.0, by the parser they were recorded with
KEPT: Final = (*map(str, PARSERS), *EXTRAS)

FOLDER: Final = Path(__file__).parent / "vectors"

_LIBRARIES: Final = ("msgspec", "google-re2", "fastavro", "pydantic")


def check_parser() -> None:
    """Check that parsing the recorded test inputs gives the recorded results.

    The check detects a library or a Python version that behaves differently. The service runs it at
    startup, before it writes any record.

    Raises:
        Finding: If a result differs from the recorded one, or the recorded results cannot be read.
    """
    for number in KEPT:
        kept = f"{FOLDER.name}/{number}.json"
        try:
            vectors = ParserVectors.load(number)
        except (OSError, ValueError, KeyError) as error:
            raise Finding(
                f"{kept}, the reference results of parser {number}, cannot be read: {error}; "
                "reinstall Hourmark"
            ) from error
        if different := vectors.failing_names():
            raise Finding(
                f"this installation does not implement parser {number}, which rules revisions "
                f"refer to: {len(different)} of the {len(vectors.vectors)} reference results in "
                f"{kept} differ, the first one is {different[0]!r}. Ranges that are sent again "
                "would produce different records, so the service does not start. The reference "
                f"results were created with: {vectors.made_with}; installed: "
                f"{dependency_versions()}. Install the versions listed in requirements.lock; an "
                "intended change requires a new parser version, see "
                "docs/internals/decisions/2026-11-22-the-parser-is-versioned.md"
            )


def dependency_versions() -> str:
    """Return the versions of Python and of the libraries that can affect parsing results.

    Returns:
        A string for messages, such as `Python 3.11.7, msgspec 0.22.0, ...`.
    """
    libraries = (f"{name} {importlib.metadata.version(name)}" for name in _LIBRARIES)
    return ", ".join((f"Python {platform.python_version()}", *libraries))


class ParserVectors:
    """The recorded test vectors of one parser version, with the digests of the expected results.

    A test vector has a name, a rules revision (version of the declared event types), a byte range
    of a file or a batch of API events, a body, and the digest of the expected result. A byte range
    may be parsed for several time zones.

    Args:
        content: Decoded JSON content of a test vector file.

    Attributes:
        vectors: The test vectors, as decoded from JSON.
        made_with: Versions of Python and libraries that produced the recorded results.
    """

    def __init__(self, content: Mapping[str, Any]) -> None:
        book = RulesBook((key, value) for key, value in content["rules"])
        self._rules = {rules.id: CompiledRules(rules) for rules in book.revisions}
        self._bodies: Sequence[str | list[tuple[str, int]]] = content["bodies"]
        self._ranges: Mapping[str, Any] = content["ranges"]
        self.made_with: str = content["made_with"]
        self.vectors: Sequence[Mapping[str, Any]] = content["vectors"]

    @classmethod
    def load(cls, number: int | str) -> ParserVectors:
        """Load a set of test vectors from the files in this package.

        Args:
            number: Parser version, or the name of an additional set of vectors.

        Raises:
            OSError: If the file cannot be read.
            ValueError: If the file is not valid.
            KeyError: If the file lacks a required member.
        """
        return cls(json.loads((FOLDER / f"{number}.json").read_text()))

    def failing_names(self) -> list[str]:
        """Parse all test vectors and return the names of those that fail.

        A vector fails if its result differs from the recorded one. A vector that cannot be parsed
        fails too, and is logged.

        Returns:
            Names in the order of `vectors`. Empty if all recorded results are reproduced.
        """
        return [vector["name"] for vector in self.vectors if not self._same(vector)]

    def digest(self, vector: Mapping[str, Any]) -> str:
        """Parse the input of a test vector and return a digest of all its records and counts.

        Args:
            vector: One element of `vectors`.

        Returns:
            The 12-byte BLAKE2b digest in hexadecimal.
        """
        whole = hashlib.blake2b(digest_size=12)
        for parsed in self.parse(vector):
            for part in _parts(parsed):
                whole.update(len(part).to_bytes(8) + part)
        return whole.hexdigest()

    def parse(self, vector: Mapping[str, Any]) -> Iterator[ParsedRange]:
        """Parse the input of a test vector and yield the results.

        Args:
            vector: One element of `vectors`.

        Yields:
            One result for a batch of API events, or one result per time zone for a byte range.
        """
        rules, body = self._rules[vector["rules"]], _body(self._bodies[vector["body"]])
        if "batch" in vector:
            yield BatchParser(Batch(**vector["batch"], rules=rules.id), body, rules).parse_all()
            return
        fields = {**self._ranges, **vector["range"]}
        part, start = Part(fields.pop("part")), fields["start"]
        for zone in fields.pop("zones"):
            yield parse_range(
                ByteRange(**fields, zone=zone, part=part, end=start + len(body), rules=rules.id),
                body,
                rules,
            )

    def _same(self, vector: Mapping[str, Any]) -> bool:
        try:
            return self.digest(vector) == str(vector["digest"])
        # any exception of a changed library is a difference, and is reported as one
        except Exception as error:  # noqa: BLE001
            _LOG.error("the reference case %s cannot be parsed: %r", vector["name"], error)
            return False


def _parts(parsed: ParsedRange) -> Iterator[bytes]:
    for record in parsed.records:
        yield from (
            record.event_type.encode(),
            record.key,
            record.value,
            str(record.hour_start_s).encode(),
        )
    yield f"{parsed.lines} {parsed.events} {parsed.dead_letters}".encode()
    yield parsed.audit.encode(
        with_checksums=False
    )  # vectors of 0.3.0 have none, and checksums follow from the values


def _body(stored: str | list[tuple[str, int]]) -> bytes:
    text = stored if isinstance(stored, str) else "".join(piece * times for piece, times in stored)
    return text.encode("latin-1")
