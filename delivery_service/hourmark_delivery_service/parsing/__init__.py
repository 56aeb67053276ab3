"""Parsing: from raw bytes and a rules revision to Avro records, as a pure function.

The package uses neither a clock nor a configuration.

- `range` and `batch` are the entry points: they split a body into lines and collect the results
  (`records`)
- `json_bodies` converts JSON arrays and objects to lines first
- `lines` parses most lines with the least work: RFC 5424 with JSON or text, and patterns.
  `messages` parses all formats: headers (`syslog/`), messages (`forms`, `json_payload`), and fields
  (`values/datum_encoder`)
- `time_and_host` finds the year, time zone and host of a line; `times/` and `zones` parse times
- `compiled` prepares a rules revision for parsing; `values/` encodes Avro
- `reject` and `dead_letter`: a rejected line becomes a dead letter
- `parsers` lists the parser versions of this software; `parser_check` verifies them against
  recorded results (`vectors`). `zone_data` holds time zone data by version
"""

from hourmark_delivery_service.parsing.batch import Batch, BatchParser
from hourmark_delivery_service.parsing.compiled import CompiledRules
from hourmark_delivery_service.parsing.range import RangeParser, parse_range
from hourmark_delivery_service.parsing.records import (
    EVENT_BYTES_MAX,
    TIME_MS_END,
    ParsedRange,
    ParsedRecord,
    Parser,
    Slice,
)

__all__ = [
    "EVENT_BYTES_MAX",
    "TIME_MS_END",
    "Batch",
    "BatchParser",
    "CompiledRules",
    "ParsedRange",
    "ParsedRecord",
    "Parser",
    "RangeParser",
    "Slice",
    "parse_range",
]
