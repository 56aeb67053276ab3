"""One ledger for two sites: a bucket waits for both, and each promise counts against its own site's
offsets.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from sqlalchemy import select
from tests.support.closing import (
    frontier,
    grade,
    grades,
    hour,
    manifest,
    open_hours,
    override,
    poll,
    send,
    send_again,
    settle,
    until,
    wait_of,
)
from tests.support.records import audit_group, seal
from tests.support.simulator.sites import FURTHER, FakeMirror
from tests.support.simulator.truth import EDGE_PARTITIONS, FIRST_HOUR, TYPES, config_of
from tests.support.simulator.world import World

from hourmark.config.groups import KafkaCluster, KafkaSettings
from hourmark.config.loading import Config
from hourmark.errors import Finding, Unavailable, UsageError
from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import AUDIT, HOSTS, events_topic
from hourmark.rollback.version import VERSIONS
from hourmark_etl.closing.cut.clusters import KafkaSiteClusters
from hourmark_etl.closing.cut.cut import EdgeEnds, Waiting
from hourmark_etl.closing.cut.edge import EdgeSite
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.frontier_rows import decode_seals, encode_seals
from hourmark_etl.ledger.hosts.sites import check_sites
from hourmark_etl.ledger.partitions.offset_gaps import read_last_checks
from hourmark_etl.model import FIRST_SITE, NO_AUDIT_OFFSETS, AuditOffsets
from hourmark_etl.operators.rollback import obstacles
from hourmark_etl.staging.pieces import StagedNote
from hourmark_etl.topics import CentralTopicNames

pytestmark = pytest.mark.slow

CLICK = Partition(events_topic("click"), 0)
BOTH = AuditOffsets.from_offsets({FIRST_SITE: 5, FURTHER: 9})


@pytest.fixture
def world(tmp_path: Path, template: Path) -> Iterator[World]:
    made = World(tmp_path, template, FURTHER)
    yield made
    made.end()


def at(world: World, site: int) -> None:
    """What is sent from now on goes to this site."""
    world.producers.at = world.producers.edges[site]


def send_at(world: World, site: int, time_ms: int | None = None) -> None:
    at(world, site)
    send(world, ["click"], time_ms)


def arrive_from(world: World, site: int, *topics: str) -> None:
    """All of one site, or these topics of it, is mirrored; what is at the centre is staged."""
    mirror = world.pipeline.mirrors[site]
    for p in EDGE_PARTITIONS:
        if not topics or p.topic in topics:
            mirror.copy(p, mirror.lag(p))
    world.pipeline.stage_all(0)


def closed(world: World) -> int:
    """How many hours the closer closes before it waits."""
    count = 0
    while not isinstance(outcome := world.closer.step(), Waiting):
        count += outcome
    world.check()
    return count


def test_offsets_of_two_sites_have_no_order() -> None:
    ahead, behind = (
        AuditOffsets.from_offsets({FIRST_SITE: 6, FURTHER: 8}),
        AuditOffsets.from_offsets({FIRST_SITE: 5, FURTHER: 8}),
    )
    assert ahead.reaches(behind) and not behind.reaches(ahead)
    assert not ahead.reaches(BOTH) and not BOTH.reaches(ahead)
    assert BOTH.reaches(NO_AUDIT_OFFSETS) and not AuditOffsets.from_offsets(100).reaches(BOTH), (
        "a site that is not named has nothing"
    )
    assert ahead.maximum(BOTH) == AuditOffsets.from_offsets({FIRST_SITE: 6, FURTHER: 9})
    assert ahead.minimum(BOTH) == behind
    assert BOTH.minimum(AuditOffsets.from_offsets(7)) == AuditOffsets.from_offsets(
        {FIRST_SITE: 5, FURTHER: 0}
    )


def test_of_one_site_offsets_are_told_as_they_were_before_there_were_several() -> None:
    one = AuditOffsets.from_offsets(7)
    assert (one.to_json(), one.to_marker_json(), AuditOffsets.from_offsets({"0": 7})) == (
        7,
        {"0": 7},
        one,
    )
    assert (BOTH.to_json(), BOTH.to_marker_json()) == ({"0": 5, "west": 9}, {"0": 5, "west": 9})
    for offsets in (one, BOTH):
        sealed = (seal(audit_next=offsets),)
        assert decode_seals(encode_seals(sealed)) == sealed
    assert json.loads(encode_seals((seal(audit_next=one),)))[0]["audit_next"] == 7


def test_a_note_names_its_site_and_notes_of_0_3_0_name_it_where_it_is_a_further_one() -> None:
    for site, fields_of_0_3_0 in ((FIRST_SITE, 7), (FURTHER, 8)):
        note = StagedNote(
            ledger="l", kind="audit", rows=1, audit_groups=(audit_group("f", site=site),), path="f"
        )
        assert StagedNote.from_json("f", note.to_json()) == note
        written = json.loads(note.to_json())
        written["audit_groups"] = [fields[:fields_of_0_3_0] for fields in written["audit_groups"]]
        assert StagedNote.from_json("f", json.dumps(written)) == note, "as 0.3.0 wrote it"


def test_names_of_topics_tell_their_site() -> None:
    kafka = KafkaSettings(
        central=KafkaCluster(),
        edge_alias="east",
        further_edges={"west": KafkaCluster(bootstrap="w:1")},
    )
    topics = CentralTopicNames.from_settings(kafka, ["click"])
    assert topics.audits == {"east.hourmark.audit": FIRST_SITE, "west.hourmark.audit": "west"}
    assert topics.hosts == {"east.hourmark.hosts", "west.hourmark.hosts"}
    assert topics.by_type() == {"click": ["east.events.click", "west.events.click"]}
    assert [
        topics.type_of(t) for t in ("west.events.click", "east.events.click", "west.hourmark.audit")
    ] == [
        "click",
        "click",
        None,
    ]
    with pytest.raises(ValueError, match="was not mirrored"):
        topics.at_edge("north.events.click")
    assert [(of.edge_alias, of.edge.bootstrap, of.further_edges) for of in kafka.sites] == [
        ("east", "127.0.0.1:9092", {}),
        ("west", "w:1", {}),
    ]
    with pytest.raises(ValueError, match="further_edges requires"):
        KafkaSettings(further_edges={"west": KafkaCluster()})
    with pytest.raises(ValueError, match="each site requires its own alias"):
        KafkaSettings(central=KafkaCluster(), further_edges={"edge": KafkaCluster()})


def one_behind(world: World, behind: int) -> None:
    """Reports of all say that the hour is over; promises and events of one site are still on their
    way.
    """
    for site in (0, 1):
        send_at(world, site)
    until(world, FIRST_HOUR)
    arrive_from(world, behind)
    send_at(world, behind, FIRST_HOUR.start_s * 1000 + 1)
    world.producers.report(0)
    arrive_from(world, 1 - behind)
    arrive_from(world, behind, HOSTS)
    assert closed(world) == 0 and open_hours(world) == {FIRST_HOUR}
    assert ("edge", "west")[behind] in wait_of(world).what[0]
    arrive_from(world, behind)
    assert closed(world) == 2
    assert (grade(world), manifest(world).events, manifest(world).unaudited) == ("proved", 3, 0)
    assert manifest(world).evidence.audit_next.keys() == {"0", "west"}
    assert {o.topic for o in manifest(world).offsets} == {"edge.events.click", "west.events.click"}


@pytest.mark.parametrize("behind", [0, 1])
def test_one_site_behind_keeps_every_type_open(world: World, behind: int) -> None:
    one_behind(world, behind)


def further_not_awaited(patch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the mirror of the further site."""
    real = KafkaSiteClusters.find_unmirrored_topics

    def not_mirrored(self: KafkaSiteClusters, cut: EdgeEnds) -> dict[str, str]:
        return real(self, {site: ends if site == FIRST_SITE else {} for site, ends in cut.items()})

    patch.setattr(KafkaSiteClusters, "find_unmirrored_topics", not_mirrored)


def further_not_asked(patch: pytest.MonkeyPatch) -> None:
    """The edge of the further site is not asked for its ends."""
    real = EdgeSite.ends

    def ends(self: EdgeSite, topics: Sequence[str]) -> dict[Partition, int]:
        return real(self, topics) if self.site == FIRST_SITE else {}

    patch.setattr(EdgeSite, "ends", ends)


@pytest.mark.parametrize("plant", [further_not_awaited, further_not_asked])
def test_a_cut_that_leaves_a_site_out_is_noticed(
    world: World, monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        one_behind(world, 1)


@pytest.mark.slow
def test_a_site_that_does_not_answer_keeps_every_type_open(world: World) -> None:
    send_at(world, 0)
    until(world, FIRST_HOUR)
    world.producers.report(0)
    for mirror in world.pipeline.mirrors:
        for p in EDGE_PARTITIONS:
            mirror.copy(p, mirror.lag(p))
    world.pipeline.stage_all(0)
    away = world.producers.edges[1]
    away.leaderless = dict.fromkeys(away.logs, 1)
    with pytest.raises(Unavailable, match="west edge"):
        world.closer.step()
    assert open_hours(world) == {FIRST_HOUR}
    away.leaderless.clear()
    assert closed(world) == 2 and grade(world) == "proved"


def test_a_late_promise_counts_against_its_own_site_alone(world: World) -> None:
    """Its offset is far below what is settled of the other site."""
    for _ in range(20):
        send_at(world, 0)
    settle(world, FIRST_HOUR)
    settled = frontier(world).settled_next
    assert settled.offset_of(FIRST_SITE) > 20 and settled.offset_of(FURTHER) == 0
    send_at(world, 1, FIRST_HOUR.start_s * 1000 + 5)
    settle(world, hour(1))
    late = manifest(world, at=hour(1))
    assert (
        late.grade.value,
        late.evidence.audit_records,
        sum(late.late.values()),
        late.unaudited,
    ) == ("proved", 1, 1, 0)
    assert frontier(world).settled_next.offset_of(FURTHER) > 0


def test_a_lost_event_of_the_further_site_is_never_proved(world: World) -> None:
    send_at(world, 0)
    for _ in range(2):
        send_at(world, 1)
    world.pipeline.mirrors[1].copy(CLICK, 2, drop=1)
    settle(world, FIRST_HOUR)
    assert grades(world) == [] and frontier(world).alarm
    override(world)
    world.clock.advance(11)
    poll(world)
    assert grade(world) == "forced"


def test_a_range_that_went_to_both_sites_is_one(world: World) -> None:
    """Its tailer heard nothing from the first, and tried the other."""
    send_at(world, 0)
    again = world.producers.ranges[-1]
    at(world, 1)
    send_again(world, again, recorded=True)
    settle(world, FIRST_HOUR)
    assert (grade(world), manifest(world).events, manifest(world).duplicates_removed) == (
        "proved",
        1,
        1,
    )
    send_again(world, again, recorded=True)  # and once more, after its bucket was closed
    settle(world, hour(1))
    assert (grade(world, at=hour(1)), manifest(world, at=hour(1)).events) == ("proved", 0)


def test_retention_that_overtakes_the_further_mirror_is_told_with_its_site(world: World) -> None:
    settle(world, FIRST_HOUR)
    send_at(world, 1)
    world.pipeline.mirrors[1].overtake(CLICK)
    settle(world, hour(1))
    assert grades(world) == ["proved"]
    assert "west: " in wait_of(world).what[0]
    assert {p.topic for p in read_last_checks(world.database)} >= {AUDIT, f"{FURTHER}.{AUDIT}"}
    override(world)
    poll(world)
    settle(world, hour(2))
    assert grades(world) == ["proved", "forced", "proved"], (
        "the gap is accepted, and watched from there"
    )


def test_a_site_that_is_no_longer_named_stops_closing(world: World) -> None:
    send_at(world, 1)
    settle(world, FIRST_HOUR)
    world.config = config_of(world.ledger)
    with pytest.raises(UsageError, match="promises of the sites west, which"):
        world.start_closer()


def test_another_site_cannot_become_the_first(world: World) -> None:
    swapped = {"west.hourmark.audit": FIRST_SITE, "edge.hourmark.audit": "edge"}
    with pytest.raises(UsageError, match=r"set kafka\.edge to the original site"):
        check_sites(world.database, world.closer.lease, swapped)


def test_promises_that_a_cut_does_not_know_are_not_passed_over(world: World) -> None:
    """Were the check at the start left out."""
    send_at(world, 1)
    world.pipeline.arrive()
    known = dataclasses.replace(frontier(world), hour=FIRST_HOUR)
    with pytest.raises(Finding, match="promises of the sites west, which the cut does not include"):
        world.engine(world.database).prove([known], AuditOffsets.from_offsets(10))


def test_older_versions_are_refused_a_ledger_of_several_sites(world: World) -> None:
    send_at(world, 1)
    settle(world, FIRST_HOUR)
    found = [o.seen for o in obstacles(world.config, VERSIONS["0.2.0"])]
    assert any(text.startswith("it closes buckets for further sites, west") for text in found)


def test_rows_of_one_site_are_those_of_before(tmp_path: Path, template: Path) -> None:
    """Null columns, so that digests are what they were."""
    world = World(tmp_path, template)
    send(world, ["click"])
    settle(world, FIRST_HOUR)
    with world.database.reading() as connection:
        assert set(connection.execute(select(tables.audit_groups.c.site)).scalars()) == {None}
        assert set(connection.execute(select(tables.frontiers.c.settled_further)).scalars()) == {
            None
        }
    assert manifest(world).evidence.audit_next.keys() == {"0"}
    world.end()


def test_a_site_joins_a_ledger_that_is_there(world: World) -> None:
    """Its events of hours that are closed are late ones."""
    both = world.config, world.pipeline.mirrors, world.pipeline.topics
    one = config_of(world.ledger)
    again_with(world, one, both[1][:1], CentralTopicNames.from_settings(one.kafka, TYPES))
    send_at(world, 0)
    settle(world, FIRST_HOUR)
    assert grade(world) == "proved" and manifest(world).evidence.audit_next.keys() == {"0"}
    again_with(world, *both)
    for time_ms in (FIRST_HOUR.start_s * 1000 + 7, None):
        send_at(world, 1, time_ms)
    settle(world, hour(1))
    joined = manifest(world, at=hour(1))
    assert (joined.grade.value, joined.events, joined.late) == ("proved", 2, {str(FIRST_HOUR): 1})
    assert joined.evidence.audit_next.keys() == {"0", "west"}


def again_with(
    world: World, config: Config, mirrors: list[FakeMirror], topics: CentralTopicNames
) -> None:
    """The driver is started again, by other settings."""
    world.config, world.pipeline.mirrors, world.pipeline.topics = config, mirrors, topics
    world.closer_database.close()
    world.start_closer()
