"""Problems are reported once each, causes before consequences, and large groups as one line."""

from __future__ import annotations

from hourmark.commands.problems import (
    CauseClass,
    Problem,
    order_problems,
    silent_host_problem,
)
from hourmark.printing import name_some


def problem(cause: CauseClass, key: str, since_ms: int | None = None, what: str = "") -> Problem:
    return Problem(cause=cause, key=key, subject=key, what=what, do="act", since_ms=since_ms)


def test_causes_come_before_consequences_and_the_oldest_first() -> None:
    found = [
        problem(CauseClass.TYPES, "types", 1),
        problem(CauseClass.COMPONENT, "unknown begin"),
        problem(CauseClass.COMPONENT, "later", 9),
        problem(CauseClass.COMPONENT, "earlier", 3),
        problem(CauseClass.SERVER, "server", 99),
        problem(CauseClass.CLOCK, "clock"),
    ]
    assert [p.key for p in order_problems(found)] == [
        "clock",
        "server",
        "earlier",
        "later",
        "unknown begin",
        "types",
    ]


def test_what_two_sources_found_is_reported_once_as_the_first_said() -> None:
    precise = problem(CauseClass.COMPONENT, "mirror", what="since 5 s")
    other = problem(CauseClass.SERVER, "mirror", what="does not listen")
    assert order_problems([precise, other]) == [precise]


def test_a_hundred_silent_tailers_are_one_line_with_the_longest_first() -> None:
    hosts = [silent_host_problem("tailer", f"web-{n}", f"{n:032}", 1000 + n) for n in range(100)]
    (merged,) = order_problems(reversed(hosts))
    assert (merged.subject, merged.count) == ("100 tailers without a report", 100)
    assert merged.examples == ("tailer web-0", "tailer web-1", "tailer web-2")
    assert merged.since_ms == 1000 and merged.what.startswith("tailer web-0: ")


def test_a_few_of_a_group_stay_apart() -> None:
    hosts = [silent_host_problem("tailer", f"web-{n}", f"{n:032}", 1000) for n in range(3)]
    assert [p.subject for p in order_problems(hosts)] == [
        "tailer web-0",
        "tailer web-1",
        "tailer web-2",
    ]


def test_some_names_are_enumerated_and_the_others_counted() -> None:
    assert name_some(["a"]) == "a"
    assert name_some(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
