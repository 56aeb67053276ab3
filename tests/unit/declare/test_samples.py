"""Lines that come, under new declarations: what would refuse them is refused; what dead letters say
of mistyped declarations.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from hourmark.config.groups import ParsingSettings
from hourmark.errors import UsageError
from hourmark.rules.event_types import DEAD_LETTERS, Declarations, EventType, LineRule, Source
from hourmark.rules.revision import Rules, TypeVersion
from hourmark_declare.line_trial import ReadContext
from hourmark_declare.samples import (
    BLANK,
    EVENT,
    UNKNOWN,
    ReparsedDeadLetters,
    SampleLines,
    check_samples,
    reparse_dead_letters,
)

NOW_MS = 1_795_000_000_000
APP = Source(name="app", format="free", types=["click"])
S = {"name": "user", "type": "string"}


def declared(pattern: str) -> Declarations:
    rule = LineRule(payload="pattern", pattern=pattern, time="observed")
    return Declarations([EventType(name="click", fields=[S], line=rule), DEAD_LETTERS], [APP])


def in_force(declarations: Declarations) -> Rules:
    versions = {
        t.name: TypeVersion(t, schema_id) for schema_id, t in enumerate(declarations.types, 1)
    }
    return Rules(sequence=4, types=versions, sources={"app": APP}, parsing=ParsingSettings())


BEFORE, AFTER = declared("user=(?P<user>[a-z]+)"), declared("user=(?P<user>[a-m]+)")


def samples(*lines: bytes) -> SampleLines:
    return SampleLines(
        source="app", lines=lines, context=ReadContext(observed_at_ms=NOW_MS, zone="UTC", host="h")
    )


def test_a_sample_line_that_was_an_event_and_would_be_none_is_refused_by_its_number() -> None:
    with pytest.raises(
        UsageError, match=r"1 of 3 sample lines of source app .* line 2: no_pattern.*--refuse-lines"
    ):
        check_samples(in_force(BEFORE), AFTER, samples(b"user=abc", b"user=xyz", b"neither"))


def test_a_line_that_was_a_dead_letter_before_refuses_nothing() -> None:
    assert check_samples(in_force(BEFORE), AFTER, samples(b"user=abc", b"neither", b"")) == 1


def test_before_the_first_revision_nothing_is_refused() -> None:
    assert check_samples(None, AFTER, samples(b"user=abc", b"user=xyz")) == 1


def letter(
    raw: bytes, *, source: str = "app", reason: str = "no_pattern", file: Any = "f"
) -> dict[str, Any]:
    return {
        "declared_source": source,
        "claimed_type": None,
        "reason": reason,
        "raw": raw,
        "detail": "why",
        "file": file,
        "host": "h",
        "event_time": dt.datetime.fromtimestamp(NOW_MS / 1000, dt.UTC),
    }


def again(*letters: dict[str, Any]) -> list[ReparsedDeadLetters]:
    return reparse_dead_letters(BEFORE, letters)


def test_dead_letters_that_these_declarations_mend_are_told_from_those_that_stay() -> None:
    stays, mended = again(letter(b"nothing"), letter(b"user=abc"), letter(b"no"))
    assert (stays.letters, stays.now, stays.stay_dead_letters) == (2, "no_pattern", True)
    assert (mended.letters, mended.now, mended.stay_dead_letters) == (1, EVENT, False)
    assert "2 dead letters no_pattern would be dead letters again, no_pattern" in str(stays)


def test_a_mistyped_source_is_named_with_the_one_that_is_near() -> None:
    (kind,) = again(letter(b"user=abc", source="ap", reason="unknown_source"))
    assert kind.stay_dead_letters
    assert "no source ap is declared here; did you mean app?" in str(kind)


@pytest.mark.parametrize(
    ("of", "now"),
    [
        (letter(b"", reason="empty_line"), BLANK),
        (letter(b"", reason="no_pattern"), UNKNOWN),  # withheld: its type redacts
        (letter(b"x" * 99, reason="line_too_long"), UNKNOWN),  # a part of it
        (letter(b"{}", file=None), UNKNOWN),  # of a batch
    ],
)
def test_a_line_that_is_not_at_hand_is_not_judged(of: dict[str, Any], now: str) -> None:
    (kind,) = again(of)
    assert (kind.now, kind.stay_dead_letters) == (now, False)
