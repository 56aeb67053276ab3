"""Right worlds at random: several types, files and senders, what the project's own parser makes of
them, in buckets.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import random
from pathlib import Path
from typing import Any

import httpx
from tests.support.judged.world import MINUTE, SCHEMAS, START_MS, TYPES, World, rfc5424
from tests.unit.verify.judge.values_of_types import VALUES

from hourmark.avro.framing import event_schema
from hourmark.records.ranges import Part
from hourmark_delivery_service.parsing import Batch, BatchParser
from hourmark_verify.judge.webhdfs import DownloadedFile, HdfsEntry, WebHdfsReader

LINE_BYTES_MAX = 400
PATTERN = {
    "content": "raw-line",
    "field": "line",
    "time_format": "%Y-%m-%d %H:%M:%S,%f",
    "pattern": r"(?P<time>\d+-\d+-\d+ \S+) (?P<level>[A-Z]+) (?P<message>.*)",
}
_MINUTES = 4


class LocalHdfs(WebHdfsReader):
    """A folder, looked at without a server between."""

    def __init__(self, folder: Path) -> None:
        super().__init__("http://unused", "me")
        self._folder = folder

    def list(self, folder: str) -> list[HdfsEntry]:
        path = self._folder / folder.strip("/")
        found = sorted(path.iterdir()) if path.is_dir() else []
        return [HdfsEntry(p.name, p.is_dir(), p.stat().st_ino, p.stat().st_mtime_ns) for p in found]

    def open(self, file: str) -> DownloadedFile:
        path = self._folder / file.strip("/")
        if not path.is_file():
            request = httpx.Request("GET", "http://unused")
            raise httpx.HTTPStatusError(
                "there is none", request=request, response=httpx.Response(404, request=request)
            )
        content = path.read_bytes()
        return DownloadedFile(
            io.BytesIO(content), len(content), hashlib.blake2b(content, digest_size=16).hexdigest()
        )


def random_world(folder: Path, seed: int) -> World:
    """A world in which nothing is wrong, not written yet."""
    chance = random.Random(seed)
    schemas, types = copy.deepcopy(SCHEMAS), copy.deepcopy(TYPES)
    for number in range(chance.randint(1, 2)):
        fields = []
        for name in chance.sample(sorted(VALUES), chance.randint(1, 4)):
            avro = copy.deepcopy(VALUES[name][0])
            if isinstance(avro, dict) and "name" in avro:
                avro["name"] += str(number)
            fields.append({"name": "v_" + name.replace("-", "_"), "type": avro})
        fields.append({"name": "opt", "type": ["null", "long"], "default": None})
        event_type = ("ad", "json")[number]  # one is judged before dead letters, one after them
        schemas[event_type], types[event_type] = (
            event_schema(event_type, fields),
            {"content": "json"},
        )
    own: list[dict[str, Any]] = [
        {"name": "line", "type": "bytes"},
        {"name": "level", "type": ["null", "string"], "default": None},
        {"name": "message", "type": ["null", "bytes"], "default": None},
    ]
    schemas["pattern-log"], types["pattern-log"] = event_schema("pattern-log", own), PATTERN
    world = World(folder, schemas, types)
    world.told["line_bytes_max"] = LINE_BYTES_MAX
    for number in range(chance.randint(1, 3)):
        lines = [_line(world, chance) for _ in range(chance.randint(1, 8))]
        told: dict[str, Any] = _host(chance) | (
            {"catch_all": "server-log"} if chance.random() < 0.2 else {}
        )
        _send(world, chance, f"app{number}.log", lines, told)
    for number in range(chance.randint(0, 2)):
        lines = [_free_line(chance) for _ in range(chance.randint(1, 6))]
        told = {**_host(chance), "form": "free", "type": "pattern-log"}
        told |= {"catch_all": "server-log"} if chance.random() < 0.5 else {}
        if chance.random() < 0.5:
            told["size"] = sum(len(line) + 1 for line in lines[: chance.randint(0, len(lines))])
        _send(world, chance, f"server{number}.log", lines, told)
    _post(world, chance)
    for event_type in {plan.event_type for plan in world.plans}:
        world.leave_no_gap(event_type)
    return world


def place(world: World, event_type: str, row: dict[str, Any], chance: random.Random) -> None:
    """Put a row into its bucket; now and then it is late."""
    plan = world.plan_at(event_type, row["event_time"])
    if chance.random() < 0.1:
        world.plan_at(event_type, row["event_time"] + MINUTE * chance.randint(1, 2)).late.append(
            row
        )
    else:
        plan.rows.append(row)


def _time(chance: random.Random) -> int:
    return START_MS + chance.randrange(_MINUTES * MINUTE)


def _host(chance: random.Random) -> dict[str, Any]:
    """The hosts' one, another one, or first one and then another."""
    other, third = f"{chance.getrandbits(128):032x}", f"{chance.getrandbits(128):032x}"
    return chance.choice(
        [{}, {}, {"host": "second", "host_id": other}, {"host_id": [other, third]}]
    )


def _revise(world: World, chance: random.Random) -> None:
    """Some types get a field more, while files are sent."""
    event_type = chance.choice(sorted(world.types))
    known = [field["name"] for field in world.schemas[event_type]["fields"]]
    if "added" not in known and event_type != "server-log":
        world.revise(event_type, {"name": "added", "type": ["null", "long"], "default": None})


def _line(world: World, chance: random.Random) -> bytes:
    odd = chance.random()
    if odd < 0.15:
        return chance.choice(
            [
                b"",
                b"\r",
                b"no header",
                b"x" * 900,
                b"y" * 800,
                b"<1>1 - h a - lines - t",
                b"z" * 400,
                b"w" * 401,
            ]
        )
    name = chance.choice(
        [name for name in world.types if name not in ("server-log", "pattern-log")]
    )
    time_ms = _time(chance)
    if odd < 0.2:
        name = "no-such-type"
    if odd > 0.95:
        time_ms += chance.choice([-1, 1]) * 3 * 365 * 86_400_000
    if world.types.get(name, {}).get("content") == "msg-bytes":
        message = chance.choice([b"", b" m \r", b"\xff\x00\xc3", b"\xef\xbb\xbfbom", b"plain"])
    elif name == "track-played":
        message = json.dumps({"track": chance.choice("tü"), "ms": chance.randrange(10)}).encode()
    else:
        message = ("{" + ", ".join(_members(world, name, chance)) + "}").encode()
    line = rfc5424(name, time_ms, message)
    return line.replace(
        b" host app", chance.choice([b" host app", b" - app", b" other-host app"]), 1
    )


def _members(world: World, name: str, chance: random.Random) -> list[str]:
    members = []
    for field in world.schemas.get(name, {"fields": []})["fields"][6:]:
        if (name_of := field["name"]) in ("opt", "added"):
            members += chance.choice([[], [], [f'"{name_of}": null'], [f'"{name_of}": 7']])
        else:
            _, right, wrong = VALUES[field["name"][2:].replace("_", "-")]
            members.append(
                f'"{field["name"]}": {chance.choice(wrong if chance.random() < 0.05 else right)}'
            )
    chance.shuffle(members)
    return members + (['"surprise": 1'] if chance.random() < 0.05 else [])


def _free_line(chance: random.Random) -> bytes:
    seconds = chance.randrange(_MINUTES * 60)
    timed = (
        f"2025-11-21 00:{seconds // 60:02}:{seconds % 60:02},{chance.randrange(1000):03} INFO "
        f"message {seconds}"
    ).encode()
    return chance.choice(
        [timed, timed, timed + b" \xff\r", b"\tat java.lang.Thread", b"", b"q" * 500]
    )


def _send(
    world: World, chance: random.Random, name: str, lines: list[bytes], told: dict[str, Any]
) -> None:
    tail = chance.choice([b"", b"unterminated", b"u" * chance.choice([400, 401, 799, 800, 1000])])
    path = world.source(name, b"".join(line + b"\n" for line in lines) + tail, **told)
    host_ids, start, sent_ms = world.host_ids(path), 0, _time(chance)
    while lines:
        host_ids = host_ids[1:] if len(host_ids) > 1 and chance.random() < 0.4 else host_ids
        if chance.random() < 0.1:
            _revise(world, chance)
        together = chance.randint(1, 3)
        if len(lines[0]) > LINE_BYTES_MAX:
            together = 1
            _in_pieces(world, chance, path, (start, len(lines[0])), sent_ms, host_ids[0])
        else:
            while any(len(line) > LINE_BYTES_MAX for line in lines[:together]):
                together -= 1
            end = start + sum(len(line) + 1 for line in lines[:together])
            _parsed(world, chance, path, (start, end), sent_ms, Part.LINES, host_ids[0])
        start += sum(len(line) + 1 for line in lines[:together])
        lines = lines[together:]
        sent_ms = max(sent_ms, _time(chance))
    if len(tail) > LINE_BYTES_MAX:  # its full pieces are sent, and what is left is awaited
        for at in range(start, start + len(tail) - LINE_BYTES_MAX + 1, LINE_BYTES_MAX):
            _parsed(
                world, chance, path, (at, at + LINE_BYTES_MAX), sent_ms, Part.CHUNK, host_ids[0]
            )


def _in_pieces(
    world: World,
    chance: random.Random,
    path: Path,
    line: tuple[int, int],
    sent_ms: int,
    host_id: str,
) -> None:
    """A terminated line that is over-long; `line`: its start, and its length without the LF."""
    start, length = line
    for at in range(start, start + length + 1, LINE_BYTES_MAX):
        end = min(at + LINE_BYTES_MAX, start + length)
        last = end < at + LINE_BYTES_MAX
        _parsed(
            world,
            chance,
            path,
            (at, end + last),
            sent_ms,
            Part.LAST_CHUNK if last else Part.CHUNK,
            host_id,
        )


def _parsed(
    world: World,
    chance: random.Random,
    path: Path,
    span: tuple[int, int],
    sent_ms: int,
    part: Part,
    host_id: str,
) -> None:
    beyond = span[0] >= world.told_of(path).get("size", 1 << 60)
    if beyond and chance.random() < 0.3:
        return  # what is past the recorded size need not have been delivered
    for event_type, row in world.parse(path, *span, sent_ms, part, host_id):
        place(world, event_type, row, chance)


def _post(world: World, chance: random.Random) -> None:
    """Some events by the API."""
    for number in range(chance.randint(0, 2)):
        rows = [
            {
                "event_id": f"mine-{number}-{index}",
                "event_time": _time(chance),
                "track": "t",
                "ms": index,
            }
            for index in range(3)
        ]
        body = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        compiled, rules = world.compiled({})
        batch = Batch(
            event_type="track-played",
            client="shop",
            key=f"key-{number}",
            observed_at_ms=START_MS + MINUTE,
            rules=rules.id,
        )
        for index, record in enumerate(BatchParser(batch, body, compiled).parse_all().records):
            place(world, record.event_type, world.decoded(record.event_type, record.value), chance)
            told = dict(rows[index])
            told = {
                "client": "shop",
                "event_id": told.pop("event_id"),
                "time_ms": told.pop("event_time"),
                "fields": told,
            }
            world.api.append({"type": "track-played", "position": index, **told})
