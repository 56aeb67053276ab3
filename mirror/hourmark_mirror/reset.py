"""`hourmark mirror reset-offsets`: the mirror forgets its positions of some topic-partitions and
copies them from their beginning.

The mirror's positions of some topic-partitions are forgotten, so that it copies them from their
beginning.

Kafka Connect forgets a position by a record without a value under the position's key. A worker
reads positions when its tasks start, and writes its own while they run: so nobody may be in the
group meanwhile.

`hourmark mirror reset-offsets`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click

from hourmark.config.loading import Config, config_option
from hourmark.errors import UsageError
from hourmark.kafka.clients import Offset, Partition
from hourmark.kafka.compacted_topic import append_all, read_topic
from hourmark.kafka.mirror import apply, keys, positions_topic, workers
from hourmark.log import set_up_logging
from hourmark.printing import json_option, say_json
from hourmark_mirror.plan_cli import topic_filter, topic_option
from hourmark_mirror.settings.mirror_sites import MirrorSites
from hourmark_mirror.verify.verification_state import VerificationState
from hourmark_mirror.watch.observation import PartitionState, WatchState
from hourmark_mirror.watch.watch_state_store import WatchStateStore

_KEY_BYTES_MAX: Final = 1 << 16


class StoredPosition(NamedTuple):
    """A position that the mirror has.

    `edge_end`: None where the edge told of no such topic-partition.
    """

    partition: Partition
    position: int
    edge_end: int | None
    key: bytes

    def as_object(self) -> dict[str, object]:
        """For programs."""
        at = self.partition
        return {
            "topic": at.topic,
            "partition": at.partition,
            "position": self.position,
            "edge_end": self.edge_end,
        }

    def __str__(self) -> str:
        edge = (
            "the edge has no such topic-partition"
            if self.edge_end is None
            else f"the edge ends at {self.edge_end}"
        )
        return f"{self.partition}: the mirror stands at {self.position}, {edge}"


def read_stored_positions(
    sites: MirrorSites, selected: Callable[[str], bool]
) -> list[StoredPosition]:
    """Positions of the selected topics. Unavailable."""
    records = read_topic(
        sites.central.settings, positions_topic(sites.alias), cluster_name="central"
    )
    positions: dict[Partition, Offset] = {}
    apply(positions, records, sites.alias)
    there = set(sites.partitions())  # after the positions: a lag below 0 is never a race
    ends = sites.edge.ends([p for p in positions if p in there])
    by_key = keys(records, sites.alias)
    return [
        StoredPosition(p, position, ends.get(p), by_key[p])
        for p, position in sorted(positions.items())
        if selected(p.topic)
    ]


def stale_positions(found: Iterable[StoredPosition]) -> list[StoredPosition]:
    """Those of topics that were made again: of which any position lies past the edge's end.

    Of such a topic no other position means anything either, though the new topic may have outgrown
    it already. What the edge does not tell of is not among them: a broker that has just started
    knows of little.
    """
    rows = list(found)
    anew = {
        one.partition.topic
        for one in rows
        if one.edge_end is not None and one.position > one.edge_end
    }
    return [one for one in rows if one.partition.topic in anew]


def refuse_while_workers_run(sites: MirrorSites) -> None:
    """UsageError where somebody runs this mirror."""
    if there := workers(sites.central, sites.alias).hosts:
        raise UsageError(
            f"{len(there)} workers of this mirror are in its group, on {', '.join(there)}: they "
            "would go on from the positions "
            "that they know. End `hourmark mirror run` on each host, and try again; one that "
            "was killed is in the group for up "
            "to a minute more"
        )


def reset_positions(work_dir: Path, sites: MirrorSites, chosen: Sequence[StoredPosition]) -> None:
    """Forget these, and first what checks and the watch (`work_dir`) believe to be copied: a hole
    made from now on would be none to them, below that. No look comes between. UsageError where a
    worker runs, or the folder cannot be used; Unavailable.
    """
    refuse_while_workers_run(sites)
    topics = {t.name: t for t in sites.topics()}
    there = [
        p
        for p in (one.partition for one in chosen)
        if p.topic in topics and p.partition in topics[p.topic].partitions
    ]
    ids, starts = {name: t.topic_id for name, t in topics.items()}, sites.edge.starts(there)
    watched = WatchStateStore(work_dir)
    with watched.locked() as memory:
        watched.save(lower_coverage(memory, ids, starts))
        checks = VerificationState(work_dir, sites.edge.cluster_id())
        checks.lower_positions(ids, starts)
        checks.save()
        delete_positions(sites, chosen)


def lower_coverage(
    memory: WatchState, ids: Mapping[str, str], starts: Mapping[Partition, int]
) -> WatchState:
    """What the watch remembers, where topics of these ids are copied again from these
    offsets on.
    """

    def again(topic: str, partitions: Mapping[int, PartitionState]) -> dict[int, PartitionState]:
        covered = {
            n: min(known.covered, starts.get(Partition(topic, n), known.covered))
            for n, known in partitions.items()
        }
        return {
            n: dataclasses.replace(known, covered=covered[n]) for n, known in partitions.items()
        }

    topics = {
        name: dataclasses.replace(known, partitions=again(name, known.partitions))
        if ids.get(name) == known.topic_id
        else known
        for name, known in memory.topics.items()
    }
    return dataclasses.replace(memory, topics=topics)


def delete_positions(sites: MirrorSites, chosen: Iterable[StoredPosition]) -> None:
    """Forget these. UsageError where a worker runs; Unavailable."""
    refuse_while_workers_run(sites)
    records = [(one.key.decode(), None) for one in chosen]
    append_all(
        sites.central.settings, positions_topic(sites.alias), records, _KEY_BYTES_MAX, as_java=True
    )


@click.command(
    name="reset-offsets",
    epilog=(
        "Examples:  hourmark mirror reset-offsets    hourmark mirror reset-offsets --topic "
        "click --yes --json"
    ),
)
@config_option
@topic_option
@click.option(
    "--all",
    "also_well",
    is_flag=True,
    help="All positions of the topics named, whether or not any looks stale.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def reset_offsets(
    config: Config, topics: tuple[str, ...], also_well: bool, yes: bool, as_json: bool
) -> None:
    """Let the mirror begin anew with topics that were deleted and made again: of which a position
    lies past the edge's end.

    Until then nothing is copied there, or only what comes after the old position, and MirrorMaker 2
    says nothing of it. End every `hourmark mirror run` first: beside a worker it is refused. What
    is on the target already is copied a second time, and dropped as duplicate by the ETL; `hourmark
    mirror verify` names it as doubled or foreign until the target's retention has deleted it. What
    the old topic held and was not copied is gone: `verify` names it. --topic with --all is for a
    target that was truncated.
    """
    set_up_logging(config.log_level)
    if also_well and not topics:
        raise click.UsageError("--all wants the topics to be named: --topic")
    sites = MirrorSites(config)
    refuse_while_workers_run(sites)  # before anybody is asked
    found = read_stored_positions(sites, topic_filter(topics))
    if topics and not found:
        raise UsageError(
            f"the mirror has no position in {' or '.join(topics)}: `hourmark mirror lag` "
            "names its topics"
        )
    chosen = found if also_well else stale_positions(found)
    if chosen and not yes:
        click.echo("\n".join(map(str, chosen)), err=True)
        click.confirm(
            f"Copy {len(chosen)} topic-partitions from their beginning?", abort=True, err=True
        )
    if chosen:
        reset_positions(config.mirror.work_dir, sites, chosen)
    if as_json:
        say_json({"reset": [one.as_object() for one in chosen]})
    elif chosen:
        click.echo("\n".join(f"reset  {one}" for one in chosen))
        click.echo(
            "start `hourmark mirror run` again on each host; `hourmark mirror lag` shows "
            "how it copies"
        )
    else:
        click.echo(
            "nothing to do: no position lies past the edge's end; --topic with --all "
            "begins anew all the same"
        )
