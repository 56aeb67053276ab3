"""Rules as a service meets them at odd moments: written by later software, by strangers, lost in
part.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import threading
from collections.abc import Iterable, Sequence

import pytest
from tests.support.revisions import CLICK, OTHER, VIEW, encoded, of_newer_software, revision
from tests.support.rules_servers import MemoryRegistry
from tests.support.service.harness import Harness, fed, with_service
from tests.support.waiting import wait_for

from hourmark.avro.framing import canonical_json, digest
from hourmark.config.groups import KafkaCluster
from hourmark.config.loading import Config
from hourmark.kafka import compacted_topic
from hourmark.kafka.clients import Cluster, Offset, Partition, TopicInfo
from hourmark.kafka.compacted_topic import KeyValue, TopicFollower
from hourmark.kafka.topic_names import TYPES
from hourmark.rules.revision import Record, Rules, RulesBook, TypeVersion
from hourmark_delivery_service.metrics import ServiceMetrics
from hourmark_delivery_service.process import store_follower
from hourmark_delivery_service.process.store_follower import StoreFollower
from hourmark_delivery_service.work import framing
from hourmark_delivery_service.work.rules_store import RulesStore


def test_a_revision_that_cannot_be_read_keeps_no_other_from_being_read() -> None:
    """Compaction brings revisions before their types: test_rules_lost.py shows it."""
    good = revision(2, CLICK)
    bad = of_newer_software(revision(1, CLICK))
    book = RulesBook()
    with pytest.raises(ValueError, match="not usable"):
        book.add(*bad)
    assert book.next_sequence == 2
    book.add(f"rules/{good.id}", good.text)
    for version in good.types.values():
        with contextlib.suppress(ValueError):
            book.add(version.key, version.text)
    assert book.missing == {}, "each type is there"
    assert book.get(good.id) == good


def test_a_record_that_is_refused_is_not_taken() -> None:
    book = RulesBook((t.key, t.text) for t in revision(1, CLICK).types.values())
    bad = of_newer_software(revision(1, CLICK))
    with pytest.raises(ValueError, match="not usable"):
        book.add(*bad)
    assert bad[0] not in book.records


def test_a_service_that_cannot_use_the_newest_revision_does_not_hand_out_the_one_before() -> None:
    """Services of two versions hand out 1 and 2 in turn, and both are ready."""
    first, second = revision(1, CLICK), revision(2, CLICK, VIEW)
    store = fed(*first.records(), of_newer_software(second))
    assert store.latest is None, (
        f"new ranges are given {store.latest.id}; lines of `view` are acknowledged as dead letters"
    )


def test_a_service_that_read_a_strangers_revision_goes_on_once_the_topic_is_repaired() -> None:
    """A second ledger's, a test's, or one of a time before ids were fixed; deleted topic, then
    `types repair`.
    """
    first, second = revision(1, CLICK), revision(2, CLICK, VIEW)
    types = {"dead-letters": first.types["dead-letters"], "other": TypeVersion(OTHER, 3)}
    stranger = dataclasses.replace(first, types=types, sources={})
    store = fed(*first.records())
    store.feed(encoded(stranger.records()), from_start=False)
    store.feed(encoded(second.records()), from_start=False)
    store.feed([], from_start=True)
    store.feed(encoded([*first.records(), *second.records()]), from_start=False)
    assert store.latest is not None and store.latest.id == second.id, (
        f"{store.latest and store.latest.id}; {store.not_ready_reason()}"
    )


def unreadable(rules: Rules) -> list[Record]:
    """Its types, and the revision as newer software writes it."""
    return [*((t.key, t.text) for t in rules.types.values()), of_newer_software(rules)]


def test_a_service_says_that_the_only_revision_cannot_be_read_here() -> None:
    store = fed(*unreadable(revision(1, CLICK)))
    assert "no event types have been applied yet" not in store.not_ready_reason(), (
        store.not_ready_reason()
    )


ODD = {
    "json without end": ("type/x/0000000000000000", "[" * 100_000),
    "a sequence that is text": (lambda t: (f"rules/2-{digest(t)}", t))(
        canonical_json({**json.loads(revision(1, CLICK).text), "sequence": "2"})
    ),
}


@pytest.mark.parametrize("odd", ODD)
def test_one_odd_record_does_not_end_the_thread_that_follows_rules(
    odd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_follower, "POLL_S", 0.01)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    store = RulesStore(ServiceMetrics())
    news = iter([(True, encoded(revision(1, CLICK).records())), (False, encoded([ODD[odd]]))])
    last = (False, encoded(revision(3, CLICK, VIEW).records()))

    class Reader:
        def poll(self) -> tuple[bool, list[KeyValue]]:
            return next(news, last)

        def close(self) -> None:
            pass

    follower = StoreFollower(Config(), TYPES, store, Reader())
    follower.start()
    try:
        wait_for(
            lambda: store.latest is not None and store.latest.id.startswith("3-"),
            "the newest revision is followed",
            10,
        )
    finally:
        follower.stop()


def test_one_answer_that_the_topic_is_unknown_does_not_empty_a_running_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker that just started answers UNKNOWN_TOPIC_OR_PARTITION until it has its metadata;
    `TopicFollower` believes one.
    """
    known = iter([{TYPES: TopicInfo(TYPES, "made once", ())}, {}])

    class EmptyCluster(Cluster):
        def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
            return next(known)

        def ends(
            self, partitions: Sequence[Partition], *, committed: bool = True
        ) -> dict[Partition, Offset]:
            return {}

        def starts(self, partitions: Sequence[Partition]) -> dict[Partition, Offset]:
            return {}

    monkeypatch.setattr(compacted_topic, "Cluster", EmptyCluster)
    follower = TopicFollower(KafkaCluster(bootstrap="127.0.0.1:1"), TYPES)
    assert follower.poll() == (True, [])
    store = fed(*revision(1, CLICK).records())
    anew, records = follower.poll()
    store.feed(records, from_start=anew)
    assert store.latest is not None, store.not_ready_reason()


@with_service()
async def test_readyz_says_that_the_registry_has_no_schema_of_audit_records(h: Harness) -> None:
    """After an upgrade that changed audit.avsc, each restarted service waits for `types apply`;
    only its log says so.
    """
    h.service.framing = None
    asking = asyncio.create_task(
        framing.find_framing(
            MemoryRegistry(), {True}, h.rules.types_by_schema_id, h.service.set_framing_error
        )
    )
    await asyncio.sleep(0.1)
    asking.cancel()
    reasons = (await h.client.get("/readyz")).json()["reasons"]
    assert any(
        "has no schema of hourmark.audit; run `hourmark types apply`" in reason
        for reason in reasons
    )


@with_service()
async def test_a_service_that_cannot_read_the_newest_revision_is_not_ready(h: Harness) -> None:
    h.rules.feed(encoded(unreadable(revision(99, CLICK, VIEW))), from_start=False)
    ready = await h.client.get("/readyz")
    assert (ready.status_code, ready.headers.get("Hourmark-Rules")) == (503, None)


def test_a_service_does_not_go_back_to_an_older_revision_because_the_topic_lost_its_end() -> None:
    """Restored from an older copy, or truncated: docs/operate/back-up-and-restore.md says that it says so at /readyz
    and takes nothing new.
    """
    first, second = revision(1, CLICK), revision(2, CLICK, VIEW)
    store = fed(*first.records(), *second.records())
    store.feed(encoded(first.records()), from_start=True)
    assert store.latest is None or store.latest.id == second.id, (
        f"hands out {store.latest.id} again, ready, and without a word"
    )
