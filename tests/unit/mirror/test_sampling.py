"""Windows of both sides, compared: what is altered, doubled, missing or foreign in one is seen; what is right never is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.mirror.test_judging import WELL, A, Looks, P

from hourmark.alarm import AlarmName
from hourmark_mirror.judging import stretches, verified
from hourmark_mirror.observed import Memory, Sample, Stretch
from hourmark_mirror.reading import Record, digest_of
from hourmark_mirror.sampling import difference


def records(contents: str, first: int = 0) -> list[Record]:
    return [Record(first + i, 1000, None, digest_of(None, c.encode())) for i, c in enumerate(contents)]


def test_a_window_that_is_there_in_its_order_is_right_wherever_it_begins_and_whatever_follows() -> None:
    assert difference(records("cde"), records("abcdefg")) is None
    assert difference(records("aab"), records("aaab")) is None, "equal ones before it"


def test_what_is_wrong_is_named_by_the_first_offset_that_is_not_in_its_place() -> None:
    edge = records("cdef", first=100)
    assert difference(edge, records("abcdf")) == 102, "missing"
    assert difference(edge, records("abcddef")) == 102, "doubled"
    assert difference(edge, records("abcdXf")) == 102, "altered"
    assert difference(edge, records("abcXdef")) == 101, "foreign"
    assert difference(edge, records("abdef")) == 100, "its first is missing"
    assert difference(edge, records("abcd")) == 102, "the end is missing"
    assert difference(edge, []) == 100


@given(st.text("abc", max_size=8), st.text("abc", min_size=1, max_size=6), st.text("abc", max_size=8))
def test_a_right_target_is_never_called_wrong(before: str, window: str, after: str) -> None:
    assert difference(records(window), records(before + window + after)) is None


@given(st.text("abc", min_size=1, max_size=6), st.text("abc", max_size=10))
def test_a_target_without_the_window_is_never_called_right(window: str, target: str) -> None:
    assert (difference(records(window), records(target)) is None) == (window in target)


def test_stretches_follow_each_other_from_the_first_look_on() -> None:
    looks = Looks()
    assert stretches(WELL, Memory()) == {}, "what was there before is verify's"
    looks.look(ends={P: 300}, positions={P: 250})
    assert stretches(looks.now, looks.memory) == {P: Stretch(100, 250)}
    sample = Sample(Stretch(100, 250), 40, looks.now.now_ms - 5000, None)
    assert looks.look(samples={P: sample}) == []
    assert stretches(looks.now, looks.memory) == {}
    (through,) = verified(looks.now, looks.memory).values()
    assert through == (sample.through_ms, 40, 150), "50 are not copied yet"
    looks.look(positions={P: 300}, samples={P: Sample(Stretch(250, 300), 40, looks.now.now_ms, None)})
    assert verified(looks.now, looks.memory)[A] == (looks.now.now_ms, 80, 200), "all that there is"


def test_a_sample_that_differs_is_an_alarm_that_stands_and_its_topic_is_not_verified() -> None:
    looks = Looks()
    looks.look(ends={P: 300}, positions={P: 300})
    (alarm,) = looks.look(samples={P: Sample(Stretch(100, 300), 40, looks.now.now_ms, 222)})
    assert alarm.name == AlarmName.CONTENTS_DIFFER and "edge offset 222" in alarm.seen
    assert [a.name for a in looks.look(samples={})] == [AlarmName.CONTENTS_DIFFER]
    assert verified(looks.now, looks.memory) == {}
