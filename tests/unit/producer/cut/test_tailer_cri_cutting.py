"""Cutting of container logs: never between a partial line and its end, of either stream, and
bounded all the same.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourmark.records import cri
from hourmark.records.ranges import Part
from hourmark_producer.cut.lines import NoCompleteLine, RangeCut, RangeLimits
from hourmark_producer.cut.records import cut_cri
from hourmark_producer.cut.sources import container_fields

T = b"2026-11-21T01:39:58.123456789Z "
LINES = [
    T + b"stdout F full",
    T + b"stdout P a ",
    T + b"stdout F b",
    T + b"stderr P c P ",
    T + b"stderr F d",
    T + b"stderr P:x e",
    T + b"stdout F",
    T + b"stdout F ",
    b"no form",
    b"",
    T + b"stdin F x",
    b"x" * 90,
]
CONTENT = st.tuples(
    st.lists(st.sampled_from(LINES), max_size=14),
    st.sampled_from([b"", b"unended", T + b"stdout F x"]),
).map(lambda made: b"".join(line + b"\n" for line in made[0]) + made[1])
LARGE = st.builds(RangeLimits, st.integers(1, 600), st.just(100_000))
SMALL = st.integers(1, 120).flatmap(
    lambda n: st.builds(RangeLimits, st.just(n), st.integers(max(n, 100), 220))
)
GROW = st.lists(st.tuples(st.integers(0, 900), st.booleans()), max_size=6).map(sorted)


def cuts(content: bytes, limits: RangeLimits, grow: list[tuple[int, bool]]) -> Iterator[RangeCut]:
    position, in_record = 0, False
    for size, flush in [*grow, (len(content), True)]:
        visible = content[:size]
        while True:

            def read(
                skip: int, count: int, visible: bytes = visible, position: int = position
            ) -> bytes:
                return visible[position + skip : position + skip + count]

            after_line_end = content[position - 1 : position] == b"\n"
            found = cut_cri(
                read, limits, in_record=in_record, after_line_end=after_line_end, flush=flush
            )
            if isinstance(found, NoCompleteLine):
                rest = visible[position:]
                assert found.searched == (0 if b"\n" in rest else len(rest))
                assert not (flush and b"\n" in rest)
                break
            yield found
            position, in_record = position + len(found.body), found.part is Part.CHUNK


def joined(body: bytes) -> list[tuple[bytes, bytes]]:
    """By a look at each line: streams and texts, in the order of their first lines."""
    found: list[tuple[bytes, bytes, bool]] = []
    for line in body.split(b"\n")[:-1]:
        parts = line.split(b" ", 3)
        if len(parts) < 3 or parts[1] not in (b"stdout", b"stderr"):
            found.append((b"", line, True))
            continue
        ended, text = parts[2].startswith(b"F"), parts[3] if len(parts) > 3 else b""
        unended = next(
            (n for n, (stream, _, done) in enumerate(found) if stream == parts[1] and not done),
            None,
        )
        if unended is None:
            found.append((parts[1], text, ended))
        else:
            found[unended] = (parts[1], found[unended][1] + text, ended)
    return [(stream, text) for stream, text, _ in found]


def read_records(body: bytes) -> list[tuple[bytes, bytes]]:
    """By the reading of tailer and service."""
    made = sorted(
        (record for _, record in cri.split_records(body) if record is not None),
        key=lambda record: record.at,
    )
    return [(record.stream, record.text) for record in made]


@given(CONTENT)
def test_lines_are_joined_by_stream(content: bytes) -> None:
    body = content[: content.rfind(b"\n") + 1]
    assert read_records(body) == joined(body)
    ends = [at for at, _ in cri.split_records(body)]
    assert ends == sorted(ends) and (not body or ends[-1] == len(body))


@given(CONTENT, LARGE, st.lists(st.integers(0, 900), max_size=6).map(sorted))
def test_however_a_file_grows_and_is_cut_its_records_are_the_same(
    content: bytes, limits: RangeLimits, sizes: list[int]
) -> None:
    found = [
        record
        for one in cuts(content, limits, [(size, False) for size in sizes])
        for record in joined(bytes(one.body))
    ]
    assert found == joined(content[: content.rfind(b"\n") + 1])


@given(CONTENT, st.one_of(SMALL, LARGE), GROW)
def test_ranges_together_are_the_bytes_of_the_file_and_bounded(
    content: bytes, limits: RangeLimits, grow: list[tuple[int, bool]]
) -> None:
    in_record, whole = False, b""
    for one in cuts(content, limits, grow):
        assert 0 < len(bytes(one.body)) <= limits.line_bytes_max + (one.part is Part.LINES)
        assert one.part is Part.CHUNK or bytes(one.body).endswith(b"\n")
        assert in_record == (one.part is Part.LAST_CHUNK) or one.part is Part.CHUNK
        in_record, whole = one.part is Part.CHUNK, whole + bytes(one.body)
    assert content.startswith(whole) and b"\n" not in content[len(whole) :]


@given(CONTENT, LARGE, GROW)
def test_only_a_flush_cuts_what_is_partial(
    content: bytes, limits: RangeLimits, grow: list[tuple[int, bool]]
) -> None:
    flushed = {size for size, flush in [*grow, (len(content), True)] if flush}
    at = 0
    for one in cuts(content, limits, grow):
        at += len(bytes(one.body))
        flush = any(content.rfind(b"\n", 0, size) + 1 == at for size in flushed)
        assert _is_clean(bytes(one.body)) or flush


def _is_clean(body: bytes) -> bool:
    unended = set[bytes]()
    for line in body.split(b"\n"):
        parts = line.split(b" ", 3)
        if len(parts) > 2 and parts[1] in (b"stdout", b"stderr"):
            (unended.discard if parts[2].startswith(b"F") else unended.add)(parts[1])
    return not unended


def test_an_over_long_record_goes_in_pieces_of_whole_lines() -> None:
    content = (
        T
        + b"stdout F a\n"
        + (T + b"stdout P " + b"x" * 60 + b"\n") * 5
        + T
        + b"stdout F end\n"
        + T
        + b"stdout F b\n"
    )
    found = [
        (one.part, bytes(one.body).count(b"\n")) for one in cuts(content, RangeLimits(100, 220), [])
    ]
    assert found == [
        (Part.LINES, 1),
        (Part.CHUNK, 2),
        (Part.CHUNK, 2),
        (Part.LAST_CHUNK, 2),
        (Part.LINES, 1),
    ]


ID = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (
            f"/var/log/containers/web-0_shop_nginx-main-{ID}.log",
            {"pod": "web-0", "namespace": "shop", "container": "nginx-main", "container_id": ID},
        ),
        (
            "/var/log/pods/shop_web-0_3f2a-9c/nginx/7.log",
            {"pod": "web-0", "namespace": "shop", "container": "nginx", "pod_uid": "3f2a-9c"},
        ),
        (
            "/var/log/pods/shop_web-0_3f2a-9c/nginx/7.log.20261121-013958",
            {"pod": "web-0", "namespace": "shop", "container": "nginx", "pod_uid": "3f2a-9c"},
        ),
        ("/var/log/containers/no-such-form.log", {}),
        ("/var/log/app.log", {}),
        (f"/var/log/containers/{'x' * 300}_shop_nginx-{ID}.log", {}),
    ],
)
def test_what_a_path_says(path: str, fields: dict[str, str]) -> None:
    assert container_fields(path) == fields
