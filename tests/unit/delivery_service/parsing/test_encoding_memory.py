"""What one small request costs in memory, for every shape of a schema whose values are larger than
what stands for them.

Each peak is measured in a process of its own, in C and in Python: in megabytes of resident memory
beyond what it had before.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support.revisions import encoded
from tests.support.service.harness import Harness, with_service
from tests.support.tiers import representative
from tools.native_cases import NOW_MS, Case, difference, parsed, python_alone

from hourmark.config.groups import ParsingSettings
from hourmark.rules.event_types import DEAD_LETTERS, EventType, LineRule, Source
from hourmark.rules.revision import Rules, TypeVersion
from hourmark_delivery_service.parsing import EVENT_BYTES_MAX, Batch, BatchParser, CompiledRules

PEAK_MB_MAX = (
    64  # the largest event, its copy, a buffer that is twice as large, and the interpreter's own
)
HEADER = b"<13>1 - h a p j - "
LARGE: dict[str, Any] = {
    "type": "record",
    "name": "Large",
    "fields": [
        {"name": "s", "type": "string", "default": "x" * 10_000},
        {"name": "n", "type": ["null", "int"], "default": None},
    ],
}
NESTED: dict[str, Any] = {
    "type": "record",
    "name": "Nested",
    "fields": [
        {"name": "a", "type": LARGE, "default": {}},
        {"name": "b", "type": "Large", "default": {}},
    ],
}


def case(fields: list[dict[str, Any]], body: bytes, **rule: Any) -> Case:
    kind = EventType(name="j", fields=fields, line=LineRule(**{"time": "observed", **rule}))
    types = {t.name: TypeVersion(t, number) for number, t in enumerate((kind, DEAD_LETTERS), 1)}
    source = Source(
        name="app", types=["j"], format="free" if "pattern" in rule else "rfc5424", host="line"
    )
    return Case(
        Rules(sequence=2, types=types, sources={"app": source}, parsing=ParsingSettings()), body
    )


def of(avro_type: Any, value: bytes) -> Case:
    return case([{"name": "v", "type": avro_type}], HEADER + b'{"v":' + value + b"}\n")


def array(item: bytes = b"{}", count: int = 20_000) -> bytes:
    return b"[" + b",".join([item] * count) + b"]"


def groups(count: int) -> str:
    """A pattern whose groups all hold the whole line."""
    return "".join(f"(?P<g{n}>" for n in range(count)) + ".*" + ")" * count


SHAPES: dict[str, Callable[[], Case]] = {
    "array of records": lambda: of({"type": "array", "items": LARGE}, array()),
    "array of nested records": lambda: of({"type": "array", "items": NESTED}, array()),
    "array of records in a union": lambda: of(
        {"type": "array", "items": ["null", "long", LARGE]}, array()
    ),
    "array of arrays": lambda: of(
        {"type": "array", "items": {"type": "array", "items": LARGE}}, array(array(count=10), 2000)
    ),
    "array of more tokens than C takes": lambda: of(
        {"type": "array", "items": LARGE}, array(count=100_000)
    ),
    "map of records": lambda: of(
        {"type": "map", "values": LARGE},
        b"{" + b",".join(b'"%d":{}' % n for n in range(20_000)) + b"}",
    ),
    "record that holds itself": lambda: of(
        {
            "type": "record",
            "name": "R",
            "fields": [
                {"name": "c", "type": {"type": "array", "items": "R"}, "default": []},
                {"name": "s", "type": "string", "default": "x" * 10_000},
            ],
        },
        b'{"c":' + array(count=20_000) + b"}",
    ),
    "lines of records": lambda: case(
        [{"name": "v", "type": {"type": "array", "items": LARGE}}],
        (HEADER + b'{"v":' + array(count=100) + b"}\n") * 300,
    ),
    "groups of a pattern": lambda: case(
        [{"name": f"g{n}", "type": "string"} for n in range(100)],
        b"y" * 1_000_000 + b"\n",
        payload="pattern",
        pattern=groups(100),
    ),
}


def resident_mb(name: str) -> float:
    text = Path("/proc/self/status").read_text()
    return int(text.split(f"{name}:")[1].split()[0]) / 1024


def peak_mb_of_a_range(shape: str, *, native: bool) -> float:
    """How much memory the slices of a range take, one after the other, beyond what the process has
    before.
    """
    made = SHAPES[shape]()
    rules = CompiledRules(made.rules)
    return (
        _peak_mb(lambda: _drain(made, rules))
        if native
        else _peak_mb(lambda: _drain_in_python(made, rules))
    )


def peak_mb_of_a_batch(shape: str) -> float:
    made = SHAPES[shape]()
    rules, body = CompiledRules(made.rules), made.body.replace(HEADER, b"")
    batch = Batch(event_type="j", client="c", key="k", observed_at_ms=NOW_MS, rules=made.rules.id)
    parser = BatchParser(batch, body, rules)
    return _peak_mb(lambda: [None for _ in parser.slices()])


def _drain(made: Case, rules: CompiledRules) -> None:
    from tools.native_cases import range_of

    from hourmark_delivery_service.parsing import RangeParser

    for _ in RangeParser(range_of(made), made.body, rules).slices():
        pass


def _drain_in_python(made: Case, rules: CompiledRules) -> None:
    with python_alone():
        _drain(made, rules)


def _peak_mb(work: Callable[[], object]) -> float:
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten (proc(5))
    before = resident_mb("VmRSS")
    work()
    return resident_mb("VmHWM") - before


def in_a_new_process(call: Callable[..., float], *given: Any, **named: Any) -> float:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(call, *given, **named).result(120)


@pytest.mark.parametrize("native", [True, False], ids=["native", "Python"])
@pytest.mark.parametrize("shape", representative(list(SHAPES), keep=0, suite=3))
def test_a_small_range_takes_no_more_memory_than_the_largest_event(
    shape: str, native: bool
) -> None:
    assert in_a_new_process(peak_mb_of_a_range, shape, native=native) < PEAK_MB_MAX


@pytest.mark.parametrize(
    "shape",
    representative([shape for shape in SHAPES if shape != "groups of a pattern"], keep=0, suite=3),
)
def test_a_small_batch_takes_no_more_memory_than_the_largest_event(shape: str) -> None:
    assert in_a_new_process(peak_mb_of_a_batch, shape) < PEAK_MB_MAX


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_c_and_python_make_the_same_of_it(shape: str) -> None:
    assert difference(SHAPES[shape]()) == ""


def test_an_event_over_the_limit_is_a_dead_letter_that_says_so() -> None:
    made = SHAPES["array of records"]()
    assert parsed(made, CompiledRules(made.rules))[1] == {"event_too_large": 1}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (array()[:-1] + b',{"s":1}]', "wrong_field"),
        (array()[:-1] + b',{"t":""}]', "wrong_field"),
        (array() + b',"w":1', "unknown_field"),
    ],
)
def test_what_is_wrong_behind_the_limit_is_still_the_reason(value: bytes, reason: str) -> None:
    made = of({"type": "array", "items": LARGE}, value)
    assert parsed(made, CompiledRules(made.rules))[1] == {reason: 1}
    assert difference(made) == ""


def test_a_branch_of_a_union_that_is_given_up_behind_the_limit_leaves_nothing() -> None:
    first = {
        "type": "map",
        "values": {
            "type": "record",
            "name": "A",
            "fields": [
                {"name": "s", "type": "string", "default": "x" * 100_000},
                {"name": "n", "type": "int", "default": 1},
            ],
        },
    }
    second = {
        "type": "record",
        "name": "B",
        "fields": [
            {"name": f"k{n}", "type": {"type": "map", "values": "string"}} for n in range(80)
        ],
    }
    value = (
        b"{"
        + b",".join(b'"k%d":%s' % (n, b"{}" if n < 79 else b'{"n":"text"}') for n in range(80))
        + b"}"
    )
    made = of([first, second], value)
    assert parsed(made, CompiledRules(made.rules))[1] == {}
    assert difference(made) == ""


@pytest.mark.parametrize("size", [EVENT_BYTES_MAX - 400, EVENT_BYTES_MAX])
def test_defaults_up_to_the_limit_are_written_whole(size: int) -> None:
    made = case(
        [{"name": "s", "type": "string", "default": "x" * size}, {"name": "n", "type": "int"}],
        HEADER + b'{"n":1}\n',
    )
    found, reasons = parsed(made, CompiledRules(made.rules))
    assert reasons == ({} if size < EVENT_BYTES_MAX else {"event_too_large": 1})
    assert found.events == 0 or len(found.records[0].value) > size
    assert difference(made) == ""


@with_service(inflight_bytes_max=4 << 20)
async def test_values_that_are_larger_than_their_body_count_as_memory_under_way(h: Harness) -> None:
    made = SHAPES["lines of records"]()
    h.rules.feed(encoded(made.rules.records()), from_start=True)
    held: list[int] = []
    append = h.queue.append

    async def watched(messages: Any) -> None:
        held.append(h.service.inflight.bytes)
        await append(messages)

    h.service.queue.append = watched  # type: ignore[method-assign]
    answer = await h.post_events(made.body.replace(HEADER, b"")[:30_000].rpartition(b"\n")[0], "j")
    assert answer.status_code == 200, answer.text
    assert max(held) > 4 << 20
    assert h.service.inflight.bytes == 0
