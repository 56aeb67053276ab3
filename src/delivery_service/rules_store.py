"""Rules revisions, ready for parsing: fed by whoever reads them, asked by requests. Nothing is known before the first feed."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from delivery_service.metrics import Metrics
from delivery_service.parsing import CompiledRules
from hourmark.rules import Rules, RulesBook

log = logging.getLogger(__name__)


class RulesStore:
    """Feed it from one thread, ask it from the event loop: what is asked is replaced whole."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._books = [RulesBook()]  # one for each time the topic was made anew; old revisions stay readable
        self._compiled: dict[str, CompiledRules] = {}
        self._unusable: set[str] = set()
        self._latest: CompiledRules | None = None
        self.caught_up = False  # whether the topic was once read to its end
        self.trouble = ""  # why it cannot be read at the moment

    def feed(self, records: Iterable[tuple[bytes | None, bytes | None]], *, anew: bool) -> None:
        """All records up to the topic's end, in its order. `anew`: it begins from its start."""
        taken = [(key.decode(errors="replace"), value) for key, value in records if key is not None and value is not None]
        if anew and taken:
            self._books.append(RulesBook())
        for key, value in taken:
            try:
                self._books[-1].add(key, value)
            except ValueError as error:
                log.error("%s; ranges that name it wait", error)
        if taken:
            latest = self._books[-1].latest
            if latest is not None:
                self._latest = self._compile(latest) or self._latest
        if self._latest is not None:
            self._metrics.rules_sequence.set(int(self._latest.id.partition("-")[0]))
        self.caught_up = True

    def get(self, revision: str) -> CompiledRules | None:
        """The revision of that id, or None where it is not known (yet)."""
        if not self.caught_up:
            return None
        known = self._compiled.get(revision)
        if known is not None:
            return known
        found = next((rules for book in reversed(self._books) if (rules := book.get(revision)) is not None), None)
        return None if found is None else self._compile(found)

    @property
    def latest(self) -> CompiledRules | None:
        """The revision that new ranges are to name."""
        return self._latest if self.caught_up else None

    def _compile(self, rules: Rules) -> CompiledRules | None:
        revision = rules.id
        if revision in self._unusable:
            return None
        try:
            compiled = CompiledRules(rules)
        except ValueError as error:
            log.error("%s; ranges that name it wait", error)
            self._unusable.add(revision)
            return None
        for problem in compiled.problems:
            log.error("rules %s: %s; its lines become dead letters", revision, problem)
        self._compiled[revision] = compiled
        return compiled
