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
        self._book = RulesBook()  # whatever was ever read: old revisions stay readable, though the topic be made anew
        self._published: set[str] = set()  # revisions that the topic holds now
        self._compiled: dict[str, CompiledRules] = {}
        self._unusable: dict[str, str] = {}  # revisions, and why they cannot be used here
        self._latest: CompiledRules | None = None
        self.caught_up = False  # whether the topic was once read to its end
        self.trouble = ""  # why it cannot be read at the moment

    def feed(self, records: Iterable[tuple[bytes | None, bytes | None]], *, anew: bool) -> None:
        """All records up to the topic's end. `anew`: it begins from its start."""
        if anew:
            self._published = set()
        for key, value in records:
            if key is not None and value is not None:
                self._add(key, value)
        latest = next((c for r in reversed(self._book.revisions) if r.id in self._published and (c := self._compile(r))), None)
        if latest is None and self._latest is not None:
            log.error("the topic of rules was lost: %s", self.why_not_ready())
        self._latest = latest
        if latest is not None:
            self._metrics.rules_sequence.set(int(latest.id.partition("-")[0]))
        self.caught_up = True

    def get(self, revision: str) -> CompiledRules | None:
        """The revision of that id, or None where it is not known (yet), or cannot be used."""
        if not self.caught_up:
            return None
        known = self._compiled.get(revision)
        if known is not None:
            return known
        found = self._book.get(revision)
        return None if found is None else self._compile(found)

    @property
    def latest(self) -> CompiledRules | None:
        """The revision that new ranges are to name."""
        return self._latest if self.caught_up else None

    def types_of_ids(self) -> dict[int, str]:
        """Of each schema id of any revision, its type."""
        return {v.schema_id: name for rules in self._book.revisions for name, v in rules.types.items()}

    def why_not(self, revision: str) -> str:
        """Why `get` has no revision of that id, for people."""
        if revision in self._unusable:
            return self._unusable[revision]
        if types := self._book.missing.get(revision):
            return f"the rules revision {revision} waits for {len(types)} records ({types[0]}, …): `hourmark types repair`"
        return f"the rules revision {revision!r:.80} is not known here (yet)"

    def why_not_ready(self) -> str:
        """Why there is no latest revision, for people."""
        if whole := [r.id for r in self._book.revisions if r.id in self._published]:
            return self.why_not(whole[-1])
        if self._published:
            return self.why_not(max(self._published))
        if self._book.revisions:
            return "hourmark.types holds no rules any more: `hourmark types repair` writes them again"
        return "no event types are applied yet: `hourmark types apply`"

    def _add(self, key: bytes, value: bytes) -> None:
        try:
            name = key.decode()
            self._book.add(name, value.decode())
        except ValueError as error:
            log.error("%s; ranges that name it wait", error)
        else:
            if name.startswith("rules/"):
                self._published.add(name.removeprefix("rules/"))

    def _compile(self, rules: Rules) -> CompiledRules | None:
        revision = rules.id
        if revision in self._unusable:
            return None
        if (known := self._compiled.get(revision)) is not None:
            return known
        try:
            self._book.check(rules)
            compiled = CompiledRules(rules)
        except ValueError as error:
            log.error("rules revision %s: %s; ranges that name it wait", revision, error)
            self._unusable[revision] = f"the rules revision {revision} cannot be used here: {error}"
            return None
        for problem in compiled.problems:
            log.error("rules %s: %s; its lines become dead letters", revision, problem)
        self._compiled[revision] = compiled
        return compiled
