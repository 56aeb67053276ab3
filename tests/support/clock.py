"""A clock for tests."""

from __future__ import annotations


class FakeClock:
    """A clock that moves only when told to; both readings move together."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_s(self) -> float:
        return self._now_ms / 1000

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move on by `seconds`, which must not be negative."""
        assert seconds >= 0, "time does not go back"
        self._now_ms += round(seconds * 1000)

    def set_back(self, seconds: float) -> None:
        """Go back by `seconds`, as a machine's clock does that was wrong and is corrected."""
        assert seconds >= 0, "use `advance`"
        self._now_ms -= round(seconds * 1000)
