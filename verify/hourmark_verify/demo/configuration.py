"""The configuration of the demo.

It consists of event types and sources for `hourmark types apply`, and of the settings of all
components. Buckets are one minute long, and reports are sent every second.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hourmark.rules.event_types import DEAD_LETTERS, read_declarations
from hourmark_verify.demo.log_lines import AD_SHOWN, HOST, TRACK_PLAYED
from hourmark_verify.demo.log_lines import LINES_TYPE as LINES

SERVER_LOG: Final = "server-log"
SERVER_SOURCE: Final = "server-logs"
LINES_SOURCE: Final = "named-lines"
EVENTS_SOURCE: Final = "app-events"

_FILES: Final = {
    f"{TRACK_PLAYED}.toml": """\
name = "track-played"
doc = "Somebody listened to a track."
fields = [
  { name = "track", type = "string" },
  { name = "user", type = "string" },
  { name = "played_ms", type = "long" },
  { name = "number", type = "long" },
  { name = "shuffle", type = "boolean" },
  { name = "country", type = ["null", "string"] },
]
""",
    f"{AD_SHOWN}.toml": """\
name = "ad-shown"
doc = "Somebody was shown an ad."
fields = [
  { name = "ad", type = "string" },
  { name = "user", type = "string" },
  { name = "price", type = "double" },
  { name = "number", type = "long" },
  { name = "slot", type = "string" },
]
""",
    f"{LINES}.toml": """\
name = "lines"
doc = "A line of a file that the user named, byte for byte."
fields = [{ name = "line", type = "bytes" }]
line = { payload = "text", field = "line" }
""",
    # Kafka writes `[time] LEVEL message (logger)`, Hadoop `time LEVEL logger: message`; what is
    # neither (stack traces, banners) becomes an event of the whole line at its time of delivery.
    f"{SERVER_LOG}.toml": """\
name = "server-log"
doc = "A line of a server's log."
fields = [
  { name = "line", type = "bytes", doc = "the whole line" },
  { name = "level", type = ["null", "string"] },
  { name = "logger", type = ["null", "string"], doc = "as Kafka names it, after the message" },
  { name = "category", type = ["null", "string"], doc = "the same as Hadoop names it, before the message" },
  { name = "message", type = ["null", "bytes"] },
]

[line]
payload = "pattern"
field = "line"
time = "observed"
time_format = "%Y-%m-%d %H:%M:%S,%f"
pattern = '''\\[?(?P<time>\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d,\\d{3})\\]? +(?P<level>[A-Z]{4,5}) +\
(?:(?P<category>[A-Za-z0-9_$]+(?:\\.[A-Za-z0-9_$]+)+): )?(?P<message>.*?)(?: \\((?P<logger>[A-Za-z0-9_$.]+)\\))?'''
""",
    "sources.toml": f"""\
[[source]]
name = "{SERVER_SOURCE}"
format = "free"
types = ["{SERVER_LOG}"]
catch_all = "{SERVER_LOG}"

[[source]]
name = "{LINES_SOURCE}"
types = ["{LINES}"]

[[source]]
name = "{EVENTS_SOURCE}"
types = ["{TRACK_PLAYED}", "{AD_SHOWN}"]
""",
}

TYPES: Final = (SERVER_LOG, LINES, TRACK_PLAYED, AD_SHOWN)

_CONTENT: Final = {
    "json": "json",
    "text": "msg-bytes",
    "pattern": "raw-line",
    "logfmt": "logfmt",
    "tsv": "tsv",
}  # by payload; values as in hourmark_verify.judge.expectations


def declarations_for_judge(
    folder: Path,
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]], dict[str, int]]:
    """Read type and source declarations, and convert them for the judge's input file.

    The judge is an independent program that compares source files with closed buckets.

    Args:
        folder: Folder with the declarations, one TOML file per event type and `sources.toml`.

    Returns:
        Three dictionaries: settings of each event type by type name, settings of each source by
        source name, and the limits for plausible event times by limit name.

    Raises:
        TypeFileError: A declaration is invalid.
    """
    types, sources, limits = read_declarations(folder)
    judge_types = {
        t.name: {
            **t.line.model_dump(exclude={"payload"}),
            "content": _CONTENT[t.line.payload],
            "fields": t.fields,
        }
        for t in types
        if t.name != DEAD_LETTERS.name
    }
    judge_sources = {
        s.name: {
            "source": s.name,
            "form": s.format,
            "type": s.types,
            "catch_all": s.catch_all,
            "hosts": s.host,
        }
        for s in sources
    }
    return judge_types, judge_sources, limits.model_dump()


def write_declarations(folder: Path) -> None:
    """Write the type and source declarations of the demo as TOML files.

    Args:
        folder: Folder to write to; it is created if it does not exist.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in _FILES.items():
        (folder / name).write_text(content)


BUCKET_SECONDS: Final = 60
SERVER_LOGS: Final = (
    "edge-*.log",
    "central-*.log",
    "namenode.log",
    "datanode.log",
    "mirror.log",
    "registry.log",
)
ZONE: Final = "UTC"  # the demo starts its servers with TZ=UTC


def demo_settings(
    stack: Mapping[str, Any], server_logs: Path, sources: Path, types: Path
) -> dict[str, Any]:
    """Return the settings of all components for the demo.

    Args:
        stack: Settings of the local stack, parsed from its hourmark.toml.
        server_logs: Folder with the logs of the stack's servers.
        sources: Folder with the log files that the demo writes.
        types: Folder with the type declarations.

    Returns:
        The stack's settings with the demo's changes, structured like hourmark.toml. Buckets are one
        minute long.
    """
    tailed = [
        {
            "name": SERVER_SOURCE,
            "paths": [str(server_logs / pattern) for pattern in SERVER_LOGS],
            "zone": ZONE,
        },
        {"name": LINES_SOURCE, "paths": [str(sources / LINES_SOURCE / "*")]},
        {"name": EVENTS_SOURCE, "paths": [str(sources / EVENTS_SOURCE / "*")]},
    ]
    return {
        **stack,
        "parsing": {"bucket_seconds": BUCKET_SECONDS},
        "types": {"dir": str(types)},
        "service": {**stack["service"], "report_seconds": 1.0},
        "etl": {
            **stack["etl"],
            # even a small batch takes seconds of CPU time, which the closer needs too
            "trigger_seconds": 4.0,
        },
        "tailer": {**stack["tailer"], "host_name": HOST, "report_seconds": 1.0, "sources": tailed},
    }
