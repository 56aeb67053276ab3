"""Parsing: from raw bytes and a rules revision to Avro records, as a pure function.

Nothing here knows a clock or a server.

- `range` and `batch` begin: they split into lines, and gather (`records`) what each line becomes
- `blank_lines` make nothing; `json_bodies` are made lines first
- `readers` picks the reader. `lines` reads what most lines are: RFC 5424 with JSON or text, and
  patterns. `messages` reads all forms: headers (`syslog`), messages (`forms`, on `json_payload`,
  `logfmt`, `patterns`), what they fill (`shape`, `redaction`)
- `placing` says when and where: year, zone and host. `timestamps`, `time_formats`, `time_words` and
  `zones` read times
- `compiled` is a rules revision made ready; `encode` and `primitives` write Avro
- `reject` is how a line is refused: it becomes a dead letter, which `dead_letter` writes
- `parsers` says which parsers this software can be, and `parser_check` whether it still is;
  `zone_data` and `vectors` are kept
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
