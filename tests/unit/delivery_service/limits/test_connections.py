"""Which connection goes: a model of any history, and what the rule is for."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourmark_delivery_service.limits.connections import ConnectionPhase, ConnectionTable

LIMITS_S: Final[dict[ConnectionPhase, float]] = {
    phase: 3.0 + 4 * n
    for n, phase in enumerate(ConnectionPhase)
    if phase is not ConnectionPhase.ANSWER
}
STEPS = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from([*ConnectionPhase, None]), st.integers(0, 4)),
    max_size=60,
)


@pytest.mark.slow
@given(STEPS)
def test_those_overdue_and_the_nearest_are_those_of_a_plain_count(
    steps: list[tuple[int, ConnectionPhase | None, int]],
) -> None:
    connections: ConnectionTable[int] = ConnectionTable(4, LIMITS_S)
    model: dict[int, tuple[ConnectionPhase, float]] = {}
    now_s = 0.0
    for connection, phase, later_s in steps:
        now_s += later_s
        if phase is None:
            connections.remove(connection)
            model.pop(connection, None)
        else:
            connections.set_phase(connection, phase, now_s)
            if connection not in model or model[connection][0] is not phase:
                model[connection] = (phase, now_s)
        deadlines = {c: since_s + LIMITS_S[p] for c, (p, since_s) in model.items() if p in LIMITS_S}
        nearest = connections.nearest_deadline()
        assert (nearest is None) == (not deadlines)
        assert nearest is None or deadlines[nearest] == min(deadlines.values())
        assert {c for c, _ in connections.overdue(now_s)} == {
            c for c, at_s in deadlines.items() if at_s <= now_s
        }
        assert all(model[c][0] is p for c, p in connections.overdue(now_s))
        assert (len(connections), connections.is_full()) == (len(model), len(model) >= 4)


def test_no_flood_takes_the_place_of_a_request_whose_body_is_here() -> None:
    connections: ConnectionTable[str] = ConnectionTable(
        2, {ConnectionPhase.HEAD: 10, ConnectionPhase.IDLE: 75}
    )
    connections.set_phase("good", ConnectionPhase.ANSWER, 0)
    connections.set_phase("half open", ConnectionPhase.HEAD, 1)
    assert connections.nearest_deadline() == "half open"
    connections.remove("half open")
    assert connections.nearest_deadline() is None
    assert connections.overdue(1e9) == []
