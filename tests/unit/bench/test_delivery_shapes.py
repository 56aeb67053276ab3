"""Which shapes of lines are the native pass's: one that is not costs ten times as much, and must
not become so in silence.
"""

from __future__ import annotations

import pytest
from bench.delivery_shapes import SHAPES, measure

from hourmark_delivery_service.parsing import native

BY_PYTHON = {"JSON without a header", "logfmt", "tsv", "pattern", "syslog"}


@pytest.mark.skipif(native.MODULE is None, reason="there is no compiled module")
def test_every_shape_of_json_is_the_native_passes() -> None:
    found = measure(lines=20, rounds=1)
    assert [one["shape"] for one in found] == [shape.name for shape in SHAPES]
    assert {one["shape"] for one in found if one["by_python"]} == BY_PYTHON
