"""Rules revisions, ready for parsing: fed by whoever reads them, asked by requests.

Nothing is known before the first feed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from hourmark.rules.revision import Rules, RulesBook, is_named_by, order_of
from hourmark_delivery_service.metrics import ServiceMetrics
from hourmark_delivery_service.parsing import CompiledRules
from hourmark_delivery_service.parsing.compiled import CompiledType

_LOG = logging.getLogger(__name__)


class RulesStore:
    """Feed it from one thread, ask it from the event loop: what is asked is replaced whole.

    The latest is the newest revision that was ever seen, or none, and then nothing is taken: while
    it is nowhere, or cannot be used here, an older one would let in what hours no longer wait for.
    """

    def __init__(self, metrics: ServiceMetrics) -> None:
        self._metrics = metrics
        self._book = (
            RulesBook()
        )  # whatever was ever read: old revisions stay readable, though the topic be recreated
        self._seen: set[str] = set()  # all revisions, whole and usable or not
        self._published: set[str] = set()  # those that the topic holds now
        self._compiled: dict[str, CompiledRules] = {}
        self._types: dict[
            tuple[str, int], CompiledType
        ] = {}  # by key and schema id: revisions share them
        self._unusable: dict[str, str] = {}  # revisions, and why they cannot be used here
        self._latest: CompiledRules | None = None
        self.counting_blanks: frozenset[bool] = (
            frozenset()
        )  # whether revisions count blank lines: each answer that one gives
        self.caught_up = False  # whether the topic was once read to its end
        self.read_error = ""  # why it cannot be read at the moment

    def feed(
        self, records: Iterable[tuple[bytes | None, bytes | None]], *, from_start: bool
    ) -> None:
        """All records up to the topic's end. `anew`: it begins from its start."""
        if from_start:
            self._published, self._unusable = set(), {}
        for key, value in records:
            if key is not None and value is not None:
                self._add(key, value)
        self.counting_blanks = frozenset(
            rules.parser.counts_blanks for rules in self._book.revisions
        )
        newest = self._newest
        rules = self._book.get(newest) if newest in self._published else None
        latest = self._compile(rules) if rules is not None else None
        if latest is None and self._latest is not None:
            _LOG.error("no new ranges are taken: %s", self.not_ready_reason())
        self._latest = latest
        if latest is not None:
            self._metrics.rules_sequence.set(order_of(latest.id)[0])
        self.caught_up = True

    def get(self, revision: str) -> CompiledRules | None:
        """The revision of that id, or None where it is not known (yet), or cannot be used."""
        if not self.caught_up:
            return None
        found = self._book.get(revision)
        return None if found is None else self._compile(found)

    @property
    def latest(self) -> CompiledRules | None:
        """The revision that new ranges are to name."""
        return self._latest if self.caught_up else None

    def types_by_schema_id(self) -> dict[int, str]:
        """Of each schema id of any revision, its type."""
        return {
            v.schema_id: name for rules in self._book.revisions for name, v in rules.types.items()
        }

    def unavailable_reason(self, revision: str) -> str:
        """Why `get` has no revision of that id, human-readable."""
        if why := self._unusable.get(revision) or self._book.unusable.get(revision):
            return f"the rules revision {revision} cannot be used here: {why}"
        if types := self._book.missing.get(revision):
            return (
                f"the rules revision {revision} waits for {len(types)} records ({types[0]}, "
                "…): `hourmark types repair`"
            )
        return f"the rules revision {revision!r:.80} is not known here (yet)"

    def not_ready_reason(self) -> str:
        """Why there is no latest revision, human-readable."""
        newest = self._newest
        if not newest:
            return "no event types are applied yet: `hourmark types apply`"
        if newest not in self._published:
            return (
                f"hourmark.types no longer holds the newest revision {newest}: `hourmark types "
                "repair` writes it again. Where "
                "the topic begins anew by intent, restart this service"
            )
        return self.unavailable_reason(newest)

    @property
    def _newest(self) -> str:
        return max(self._seen, key=order_of, default="")

    def _add(self, key: bytes, value: bytes) -> None:
        try:
            name, text = key.decode(), value.decode()
            if name.startswith("rules/") and is_named_by(name, text):
                self._seen.add(name.removeprefix("rules/"))
                self._published.add(name.removeprefix("rules/"))
            self._book.add(name, text)
        except ValueError as error:
            _LOG.error("%s; ranges that name it wait", error)

    def _compile(self, rules: Rules) -> CompiledRules | None:
        revision = rules.id
        if (known := self._compiled.get(revision)) is not None:
            return known
        if revision in self._unusable:
            return None
        try:
            self._book.check(rules, self._published)
            compiled = CompiledRules(rules, self._types)
        except ValueError as error:
            _LOG.error("rules revision %s: %s; ranges that name it wait", revision, error)
            self._unusable[revision] = str(error)
            return None
        for problem in compiled.problems:
            _LOG.error("rules %s: %s; its lines become dead letters", revision, problem)
        self._compiled[revision] = compiled
        return compiled
