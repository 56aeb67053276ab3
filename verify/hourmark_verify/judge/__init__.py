"""The judge: an independent check of closed buckets and dead letters against the source files.

It compares every line of every source file with the events in HDFS. It imports nothing else of
Hourmark, so that a mistake in the product is not repeated in its check: it has its own
implementation of event ids, bucket layout, markers, line formats and Avro conversion. The import
contract in `pyproject.toml` and `tests/unit/verify/judge/test_judge_imports.py` enforce this.

Modules, in the order of a verification:

- `expectations`: the input, a JSON file
- `sources`, `container_logs`: lines and multi-line records of the source files
- `rfc5424`, `syslog_headers`, `device_headers`, `payload_formats`, `values`, `declared_types`,
  `line_interpreter`: the event that each line must have become
- `webhdfs`, `marker`, `buckets`: the content of HDFS
- `identity`, `matching`: events compared with lines
- `marker_checks`: markers compared with their buckets, with themselves and with each other
- `check`, `report`, `snapshot`, `cli`: the whole verification and its result

Memory: 13 bytes for each source line (start offset, place in HDFS, type) and 16 bytes for each
event (id). Line contents are not kept; a line is read again when an event refers to it.
"""
