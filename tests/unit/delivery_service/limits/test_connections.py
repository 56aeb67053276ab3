"""Which connection goes: a model of any history, and what the rule is for."""

from __future__ import annotations

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from hourmark_delivery_service.limits.connections import Connections, Phase

LIMITS_S: Final[dict[Phase, float]] = {
    phase: 3.0 + 4 * n for n, phase in enumerate(Phase) if phase is not Phase.ANSWER
}
STEPS = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from([*Phase, None]), st.integers(0, 4)), max_size=60
)


@given(STEPS)
def test_those_overdue_and_the_nearest_are_those_of_a_plain_count(
    steps: list[tuple[int, Phase | None, int]],
) -> None:
    connections: Connections[int] = Connections(4, LIMITS_S)
    model: dict[int, tuple[Phase, float]] = {}
    now_s = 0.0
    for connection, phase, later_s in steps:
        now_s += later_s
        if phase is None:
            connections.leave(connection)
            model.pop(connection, None)
        else:
            connections.enter(connection, phase, now_s)
            if connection not in model or model[connection][0] is not phase:
                model[connection] = (phase, now_s)
        deadlines = {c: since_s + LIMITS_S[p] for c, (p, since_s) in model.items() if p in LIMITS_S}
        nearest = connections.nearest()
        assert (nearest is None) == (not deadlines)
        assert nearest is None or deadlines[nearest] == min(deadlines.values())
        assert {c for c, _ in connections.overdue(now_s)} == {
            c for c, at_s in deadlines.items() if at_s <= now_s
        }
        assert all(model[c][0] is p for c, p in connections.overdue(now_s))
        assert (len(connections), connections.full()) == (len(model), len(model) >= 4)


def test_no_flood_takes_the_place_of_a_request_whose_body_is_here() -> None:
    connections: Connections[str] = Connections(2, {Phase.HEAD: 10, Phase.IDLE: 75})
    connections.enter("good", Phase.ANSWER, 0)
    connections.enter("half open", Phase.HEAD, 1)
    assert connections.nearest() == "half open"
    connections.leave("half open")
    assert connections.nearest() is None
    assert connections.overdue(1e9) == []
