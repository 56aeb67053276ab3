"""Parsing: from raw bytes and a rules revision to Avro records, as a pure function. Nothing here knows a clock or a server.

- `range` and `batch` begin: they split into lines, and gather (`records`) what each line becomes
- `blank_lines` make nothing; `json_bodies` are made lines first
- `lines` decides: which type, what time, which fields; on `rfc5424`, `json_payload`, `patterns`, `text_values`
- `timestamps`, `time_formats` and `zones` read times
- `compiled` is a rules revision made ready; `encode` and `primitives` write Avro
- `reject` is how a line is refused: it becomes a dead letter, which `dead_letter` writes
- `parsers` says which parsers this software can be, and `parser_check` whether it still is; `zone_data` and `vectors` are kept
"""

from hourmark_delivery_service.parsing.batch import Batch, BatchParser
from hourmark_delivery_service.parsing.compiled import CompiledRules
from hourmark_delivery_service.parsing.range import RangeParser, parse
from hourmark_delivery_service.parsing.records import EVENT_BYTES_MAX, TIME_MS_END, ParsedRange, Parser, Record, Slice

__all__ = [
    "EVENT_BYTES_MAX",
    "TIME_MS_END",
    "Batch",
    "BatchParser",
    "CompiledRules",
    "ParsedRange",
    "Parser",
    "RangeParser",
    "Record",
    "Slice",
    "parse",
]
