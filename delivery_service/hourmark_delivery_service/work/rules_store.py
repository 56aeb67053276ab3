"""Rules revisions that this instance has read from Kafka, compiled for parsing."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from hourmark.rules.event_types import EventType
from hourmark.rules.revision import Rules, RulesBook, key_matches_content, revision_order
from hourmark_delivery_service.metrics import ServiceMetrics
from hourmark_delivery_service.parsing import CompiledRules
from hourmark_delivery_service.parsing.compiled import CompiledType

_LOG = logging.getLogger(__name__)


class RulesStore:
    """The rules revisions (versions of the declared types and sources) that were read from Kafka.

    Revisions are read from the topic `hourmark.types`, and compiled for parsing on first use. One
    thread calls `feed`, and the event loop calls the other methods.

    If the newest revision is missing from the topic or cannot be used, `latest` is None and the
    service accepts no new data. It does not use an older revision instead, because this could
    accept events for hours that are already closed.

    Args:
        metrics: Metrics that show the sequence number of the newest revision.

    Attributes:
        caught_up: Whether the topic was read to its end at least once.
        read_error: Reason why the topic currently cannot be read, or an empty string.
        counting_blanks: Contains True if a known revision counts blank lines, and False if a known
            revision stores them as dead letters (records of invalid lines).
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
        """Add the records of the rules topic that were read since the previous call.

        Invalid records are logged and skipped. A revision that disappears from the topic remains
        usable.

        Args:
            records: Keys and values of the records, up to the current end of the topic.
            from_start: Whether the records start at the beginning of the topic. The topic then
                contains exactly these records.
        """
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
            _LOG.error("no new ranges are accepted: %s", self.not_ready_reason())
        self._latest = latest
        if latest is not None:
            self._metrics.rules_sequence.set(revision_order(latest.id)[0])
        self.caught_up = True

    def get(self, revision: str) -> CompiledRules | None:
        """Return a rules revision, compiled for parsing.

        A rules revision is one version of the declared event types and sources.

        Args:
            revision: Id of the revision.

        Returns:
            The compiled revision. None if it is unknown or cannot be used, or if the topic has not
            been read to its end yet. `unavailable_reason` returns the reason.
        """
        if not self.caught_up:
            return None
        found = self._book.get(revision)
        return None if found is None else self._compile(found)

    @property
    def latest(self) -> CompiledRules | None:
        """Return the newest rules revision, which new requests should use.

        A rules revision is one version of the declared event types and sources.

        Returns:
            The compiled revision. None if there is no revision, if the newest one is missing from
            the topic or cannot be used, or if the topic has not been read to its end yet.
            `not_ready_reason` returns the reason.
        """
        return self._latest if self.caught_up else None

    def types_by_schema_id(self) -> dict[int, str]:
        """Return the event type of each schema id, over all known rules revisions.

        A rules revision is one version of the declared event types and sources.

        Returns:
            A dict that maps schema ids to names of event types. Empty if no revision is known.
        """
        return {
            v.schema_id: name for rules in self._book.revisions for name, v in rules.types.items()
        }

    def declaration(self, event_type: str) -> EventType | None:
        """Return the newest known declaration of an event type.

        Types that the newest rules revision no longer contains are included, because tailers may
        still send ranges with an earlier revision.

        Args:
            event_type: Name of the type.

        Returns:
            The declaration. None if no known revision contains the type.
        """
        versions = (rules.types.get(event_type) for rules in reversed(self._book.revisions))
        return next((version.declaration for version in versions if version is not None), None)

    def unavailable_reason(self, revision: str) -> str:
        """Return a message that explains why `get` returns None for a rules revision.

        For example, the revision is unknown or cannot be used. If a command can solve the problem,
        the message contains it.

        Args:
            revision: Id of a revision for which `get` returns None.
        """
        if why := self._unusable.get(revision) or self._book.unusable.get(revision):
            return f"the rules revision {revision} cannot be used by this service: {why}"
        if types := self._book.missing.get(revision):
            return (
                f"the rules revision {revision} waits for {len(types)} missing records "
                f"({types[0]}, …); run `hourmark types repair`"
            )
        return f"the rules revision {revision!r:.80} is unknown to this service, at least so far"

    def not_ready_reason(self) -> str:
        """Return a message that explains why `latest` is None.

        The message contains the newest revision, if one is known, and usually the command that
        solves the problem. Call this method only while `latest` is None.
        """
        newest = self._newest
        if not newest:
            return "no event types have been applied yet; run `hourmark types apply`"
        if newest not in self._published:
            return (
                f"hourmark.types no longer contains the newest revision {newest}; `hourmark "
                "types repair` writes it again. If the topic was recreated intentionally, "
                "restart this service"
            )
        return self.unavailable_reason(newest)

    @property
    def _newest(self) -> str:
        return max(self._seen, key=revision_order, default="")

    def _add(self, key: bytes, value: bytes) -> None:
        try:
            name, text = key.decode(), value.decode()
            if name.startswith("rules/") and key_matches_content(name, text):
                self._seen.add(name.removeprefix("rules/"))
                self._published.add(name.removeprefix("rules/"))
            self._book.add(name, text)
        except ValueError as error:
            _LOG.error("%s; ranges that refer to it wait", error)

    def _compile(self, rules: Rules) -> CompiledRules | None:
        revision = rules.id
        if (known := self._compiled.get(revision)) is not None:
            return known
        if revision in self._unusable:
            return None
        try:
            self._book.check_schema_ids(rules, self._published)
            compiled = CompiledRules(rules, self._types)
        except ValueError as error:
            _LOG.error("rules revision %s: %s; ranges that refer to it wait", revision, error)
            self._unusable[revision] = str(error)
            return None
        for problem in compiled.problems:
            _LOG.error(
                "rules revision %s: %s; lines of this type become dead letters", revision, problem
            )
        self._compiled[revision] = compiled
        return compiled
