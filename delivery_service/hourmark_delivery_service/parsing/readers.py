"""Which reader reads a range's lines."""

from __future__ import annotations

from hourmark.range_fields import read_range_fields
from hourmark.ranges import ByteRange
from hourmark_delivery_service.parsing.compiled import CompiledRules
from hourmark_delivery_service.parsing.lines import FreeReader, LineReader, Rfc5424Reader
from hourmark_delivery_service.parsing.messages import MessageReader


def reader_of(byte_range: ByteRange, rules: CompiledRules, **told: str) -> LineReader | None:
    """The reader that the range's source asks for, or None where the rules declare no such source. `told`: of these records."""
    source = rules.sources.get(byte_range.source)
    if source is None:
        return None
    if fields := read_range_fields(byte_range.fields) | told:
        rules = rules.with_fields(fields, source)
    if source.name not in rules.plain_sources:
        return MessageReader(byte_range, rules, source)
    return (Rfc5424Reader if source.format == "rfc5424" else FreeReader)(byte_range, rules, source)
