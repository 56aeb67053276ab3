"""Positions in earlier generations of a file, by which copies of them are recognized."""

from __future__ import annotations

from hourmark_producer.files.tracked_file import EarlierGenerations, FilePosition


def test_a_generation_that_ends_again_in_a_retry_displaces_no_other() -> None:
    earlier = EarlierGenerations()
    for generation in range(4):
        earlier = earlier.with_ended_generation(FilePosition(generation=generation, offset=100), 3)
    for offset in (100, 100, 200):
        earlier = earlier.with_ended_generation(FilePosition(generation=3, offset=offset), 3)
    assert [one.generation for one in earlier.positions] == [3, 0, 1, 2]
    assert earlier.latest == FilePosition(generation=3, offset=200)
    earlier = earlier.with_ended_generation(FilePosition(generation=4, offset=1), 3)
    assert [one.generation for one in earlier.positions] == [4, 1, 2, 3]
