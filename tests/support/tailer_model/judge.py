"""What was delivered and said, measured by the truth.

It gives findings; there are none where the tailer kept its word.

1. A range that comes again is the same; two ranges of one place never hold different bytes.
2. Each line is what was written, and comes once; after `--reread` once more at most where its file
   had been truncated.
3. Each line of a file that is still there, and that a source leads to or the tailer looked at, has
   come.
4. What is said to be lost is never more than what was destroyed unread; without unknown losses it
   is exactly that.
5. Where all could be known nothing is unknown.
6. Lines that are one record, and were written at once, are in one range.
7. Each entry of the journal comes once unless it was gone before it was read, each datagram at most
   once; what the tailer could not receive is told, and nothing else is.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator

from tests.support.tailer.recorder import Received
from tests.support.tailer_model.forms import (
    FLUSH_S,
    POD_FIELDS,
    SOURCES,
    is_torn,
    joins_lines,
    numbers_of,
)
from tests.support.tailer_model.packing import suffix_of
from tests.support.tailer_model.receiving import JOURNAL, RECEIVED, SYSLOG
from tests.support.tailer_model.receiving import numbers_of as numbers_of_messages
from tests.support.tailer_model.truth import TELLING_BYTES, Body, File, Line
from tests.support.tailer_model.world import World

_Place = tuple[str, int]  # file id, generation


def judge(world: World) -> list[str]:
    """After it was drained."""
    return [*world.services.findings, *_judged(world)]


def _judged(world: World) -> Iterator[str]:
    received = sorted(
        (one for recorder in world.services.recorders for one in recorder.stored),
        key=lambda one: (one.range.file_id, one.range.generation, one.range.start),
    )
    yield from _retries(received, rereads=world.rereads)
    for name in RECEIVED:
        yield from _messages(world, name, [one for one in received if one.range.source == name])
    places = _by_place(one for one in received if one.range.source in SOURCES)
    came, sent = Counter[int](), Counter[Body]()
    of_bodies = {place: _bodies_of(world, ranges) for place, ranges in places.items()}
    for place, ranges in places.items():
        if not (found := of_bodies[place]):
            yield (
                f"{place}: no file ever held what was delivered of it: "
                f"{ranges[0].body[:80]!r} at {ranges[0].range.start}"
            )
            continue
        file, body = found[0]
        if (
            len(found) == 1 or file.is_followed or file.looked_at
        ):  # else its copy may be what was read
            file.looked_at = not file.is_nobodys
        content = _content(ranges)
        sent[body] = max(sent[body], len(content))
        came.update(numbers_of(content))
        if joins_lines(file.source):
            yield from _records(file, ranges)
    yield from _doubles(world, came)
    yield from _left_out(world, came)
    yield from _losses(world, sent, came)


def _by_place(received: Iterable[Received]) -> dict[_Place, list[Received]]:
    places: dict[_Place, list[Received]] = {}
    for one in received:
        places.setdefault((one.range.file_id, one.range.generation), []).append(one)
    return places


def _messages(world: World, name: str, received: list[Received]) -> Iterator[str]:
    """Of a source that receives: each comes once, as it was sent, and what was lost is told."""
    came = Counter[int]()
    for ranges in _by_place(received).values():
        came.update(numbers_of_messages(name, _content(ranges)))
    sent = world.services.received[name]
    if unsent := came.pop(-1, 0):
        yield f"{name}: {unsent} lines are none that was sent"
    if doubled := [number for number, count in came.items() if count > 1]:
        yield f"{name}: {len(doubled)} messages came more than once, such as {sorted(doubled)[:5]}"
    if name == JOURNAL and sent.awaited:
        yield f"{name}: {len(sent.awaited)} entries never came, the first is {min(sent.awaited)}"
    said = (
        {source.source: source for source in world.services.last_report.sources}
        if world.services.last_report
        else {}
    )
    if name not in said or "the checkpoint was damaged" in world.doubts:
        return
    unknown_max = sent.unknown_max if name == SYSLOG or not world.journal_is_in_doubt else math.inf
    if said[name].unknown_losses > unknown_max:
        yield (
            f"{name}: {said[name].unknown_losses} losses are called unknown, there can be "
            f"{unknown_max}"
        )
    if said[name].lost_bytes and not world.disk_was_full:
        yield f"{name}: {said[name].lost_bytes} bytes are said to be lost, none are"


def _retries(received: list[Received], *, rereads: int) -> Iterator[str]:
    """Where all was read again, ranges may be cut elsewhere, but bytes are the same."""
    first: dict[tuple[str, int, int], Received] = {}
    for one in received:
        key = (one.range.file_id, one.range.generation, one.range.start)
        known = first.setdefault(key, one)
        same = (known.headers, known.compressed) == (one.headers, one.compressed)
        if not same and not (
            rereads and (known.body.startswith(one.body) or one.body.startswith(known.body))
        ):
            yield f"another range at a place that was taken: {key}"


def _content(ranges: list[Received]) -> bytes:
    """Of one place, from its first range on, up to a gap."""
    content, start = b"", ranges[0].range.start
    for one in ranges:
        at = one.range.start - start
        if at > len(content):
            break
        if at + len(one.body) > len(content):
            content = content[:at] + one.body
    return content


def _bodies_of(world: World, ranges: list[Received]) -> list[tuple[File, Body]]:
    """Which ones hold exactly these bytes at exactly these places; of a file and its copy first the
    one that may be read.
    """
    by_reach = sorted(world.truth.files, key=lambda file: not (file.is_followed or file.looked_at))
    return [
        (file, body)
        for file in by_reach
        for body in file.bodies
        if all(body.content[one.range.start : one.range.end] == one.body for one in ranges)
    ]


def _records(file: File, ranges: list[Received]) -> Iterator[str]:
    """None is torn but where it was waited for; and what the path says comes with each."""
    by_number = {line.number: line for line in _lines(file)}
    for one, following in itertools.pairwise(ranges):
        if one.range.end == following.range.start and is_torn(
            file.source, one.body, following.body
        ):
            before, after = (
                by_number[numbers_of(one.body)[-1]],
                by_number[numbers_of(following.body)[0]],
            )
            assert after.written_ms is not None, "lines without an end are not sent"
            if after.written_ms - before.unwritten_ms < 1000 * FLUSH_S - 1:
                yield (
                    f"{file.source}: a record is torn at {following.range.start}, though it "
                    "was written at once"
                )
                return
    if file.source == "pods" and (other := {one.range.fields for one in ranges} - {POD_FIELDS}):
        yield f"pods: its ranges say {other}"


def _doubles(world: World, came: Counter[int]) -> Iterator[str]:
    truncated = {
        line.number
        for file in world.truth.files
        if len(file.bodies) > 1 or file.is_copy
        for line in _lines(file)
    }
    tiny = {
        n
        for file in world.truth.files
        for body in file.bodies
        for n in numbers_of(bytes(body.content[:TELLING_BYTES]))
    }
    excused = tiny | (truncated if world.rereads else set())
    doubled = [n for n, count in came.items() if count > 1 and n not in excused]
    if doubled:
        yield f"{len(doubled)} lines came more than once, such as {sorted(doubled)[:5]}"


def _lines(file: File) -> Iterator[Line]:
    return (line for body in file.bodies for line in body.lines)


def _left_out(world: World, came: Counter[int]) -> Iterator[str]:
    for file in world.truth.named():
        if (
            file.body.destroyed
            or not (file.is_followed or file.looked_at)
            or world.truth.may_be_another(file)
        ):
            continue
        missing = [
            line.number
            for line in file.body.lines
            if line.written_ms is not None and not came[line.number]
        ]
        if missing:
            yield f"{len(missing)} lines of {file.name} never came, the first is {missing[0]}"


def _came_of(body: Body, came: Counter[int]) -> int:
    """Bytes of a content that was copied, and came from wherever; so few tell nothing, and may be
    called lost.
    """
    size = sum(
        len(line.content)
        for line in body.lines
        if line.written_ms is not None and came[line.number]
    )
    return max(0, size - TELLING_BYTES)


def _unended(world: World, source: str) -> int:
    """Bytes of last lines without an end in files that were packed: nobody will ever end them."""
    packed = [
        file.body.content
        for file in world.truth.named()
        if file.source == source and suffix_of(file.name)
    ]
    return sum(len(content) - (content.rfind(b"\n") + 1) for content in packed)


def _losses(world: World, sent: Counter[Body], came: Counter[int]) -> Iterator[str]:
    if (last := world.services.last_report) is None:
        yield "it never reported"
        return
    said = {source.source: source for source in last.sources}
    for name in SOURCES:
        gone = [
            (f, b) for f in world.truth.files for b in f.bodies if f.source == name and b.destroyed
        ]
        copied = {
            line.number for file in world.truth.files if file.is_copy for line in _lines(file)
        }
        alone = [body for _, body in gone if not any(line.number in copied for line in body.lines)]
        least = sum(len(body.content) - sent[body] for body in alone if body.looked_at)
        most = sum(
            len(b.content) - (sent[b] if b in alone else _came_of(b, came)) for _, b in gone
        ) + _unended(world, name)
        lost, unknown = said[name].lost_bytes, said[name].unknown_losses
        if (
            lost > most and not world.rereads
        ):  # a tailer that lost its checkpoint does not know what was sent
            yield f"{name}: {lost} bytes are said to be lost, {most} are"
        if not unknown and lost < least:
            yield (
                f"{name}: {lost} bytes are said to be lost and nothing is unknown; {least} are lost"
            )
        if unknown and not world.doubts:
            yield f"{name}: {unknown} losses are called unknown, though everything could be known"
