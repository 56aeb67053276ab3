"""`hourmark mirror reset-offsets`: deletes stored positions, so that topics are copied again.

Kafka Connect deletes a position when a tombstone with the position's key is written. Workers read
positions when their tasks start, and write them while the tasks run. Therefore, no worker may be in
the group during a reset.
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
from hourmark.kafka.mirror import (
    apply_positions,
    position_keys,
    positions_topic,
    read_workers,
    recreated_topics,
)
from hourmark.log import set_up_logging
from hourmark.printing import json_option, print_json
from hourmark_mirror.plan_cli import topic_filter, topic_option
from hourmark_mirror.settings.mirror_sites import MirrorSites
from hourmark_mirror.verify.verification_state import VerificationState
from hourmark_mirror.watch.observation import PartitionState, WatchState
from hourmark_mirror.watch.watch_state_store import WatchStateStore

_KEY_BYTES_MAX: Final = 1 << 16


class StoredPosition(NamedTuple):
    """Stored position of the mirror in one topic-partition of the edge cluster.

    Attributes:
        partition: Topic-partition at the edge.
        position: Edge offset of the next record to copy.
        edge_end: Log end offset at the edge; None if the edge lists no such topic-partition.
        key: Key of the record with this position in the offsets topic of Kafka Connect.
    """

    partition: Partition
    position: int
    edge_end: int | None
    key: bytes

    def as_object(self) -> dict[str, object]:
        """Return the position as a JSON-serializable dict.

        Returns:
            A dict with the keys `topic`, `partition`, `position` and `edge_end`. `edge_end` is None
            if the edge does not list the topic-partition.
        """
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
        return f"{self.partition}: the mirror's position is {self.position}, {edge}"


def read_stored_positions(
    sites: MirrorSites, selected: Callable[[str], bool]
) -> list[StoredPosition]:
    """Read the positions that MirrorMaker 2 has stored on the central cluster.

    A position is the edge offset of the next record that the mirror copies from a topic-partition.

    Args:
        sites: Clients of both clusters.
        selected: Function that returns True for the names of the edge topics to include.

    Returns:
        The positions, sorted by topic and partition; empty if none are stored.

    Raises:
        Unavailable: A cluster does not respond.
    """
    records = read_topic(
        sites.central.settings, positions_topic(sites.alias), cluster_name="central"
    )
    positions: dict[Partition, Offset] = {}
    apply_positions(positions, records, sites.alias)
    # Read after the positions, so that a negative lag is never a race.
    existing = set(sites.partitions())
    ends = sites.edge.ends([p for p in positions if p in existing])
    by_key = position_keys(records, sites.alias)
    return [
        StoredPosition(p, position, ends.get(p), by_key[p])
        for p, position in sorted(positions.items())
        if selected(p.topic)
    ]


def stale_positions(positions: Iterable[StoredPosition]) -> list[StoredPosition]:
    """Return the stored positions of topics that were deleted and recreated at the edge.

    A topic is considered recreated if any of its positions is past the edge's log end. All
    positions of such a topic are invalid, even those that the new log has already grown past.

    Args:
        positions: Stored positions of any topics. A position with an unknown edge end does not mark
            its topic as recreated, because a broker that has just started may not list the
            partition yet.

    Returns:
        All positions of recreated topics, in the given order; empty if no topic was recreated.
    """
    rows = list(positions)
    recreated = {
        one.partition.topic
        for one in rows
        if one.edge_end is not None and one.position > one.edge_end
    }
    return [one for one in rows if one.partition.topic in recreated]


def describe_no_stale_positions(recreated: Sequence[str]) -> str:
    """Return a message for the case that no position of the mirror is stale.

    A position is the offset of the next record to copy. It is stale if it is past the edge's log
    end, because the topic was deleted and recreated.

    Args:
        recreated: Edge topics that were recreated, but whose positions are not stale.

    Returns:
        Text for users. For recreated topics, it names the commands that find missing records and
        copy a topic again. Otherwise, it states that there is nothing to do.
    """
    if not recreated:
        return (
            "nothing to do: no position is past the edge's log end; --topic with --all resets "
            "positions anyway"
        )
    first = recreated[0]
    return (
        f"no position is past the edge's log end, but {', '.join(recreated)} was deleted and "
        "recreated. Either MirrorMaker 2 has copied the new topic from its start, or the new "
        f"topic is already longer than the old position. `hourmark mirror verify --topic {first} "
        "--accept` compares both sides: records that only the central cluster has are of the "
        "deleted topic and are harmless. If records are missing, `hourmark mirror reset-offsets "
        f"--topic {first} --all` copies the topic again"
    )


def find_recreated_topics(work_dir: Path, sites: MirrorSites) -> list[str]:
    """Return the edge topics that were recreated since their ids were last recorded.

    Args:
        work_dir: `mirror.work_dir`, in which `mirror verify` records topic ids.
        sites: Clients of both clusters.

    Returns:
        Sorted topic names; empty if no topic was recreated or no ids have been recorded.

    Raises:
        UsageError: The state cannot be read.
        Unavailable: The edge cluster does not respond.
    """
    known = VerificationState(work_dir, sites.edge.cluster_id()).ids
    ids = {t.name: t.topic_id for t in sites.topics()}
    return recreated_topics({name: of for name, of in known.items() if name in ids}, ids)


def check_no_worker_runs(sites: MirrorSites) -> None:
    """Check that no MirrorMaker 2 worker of this mirror is running.

    A worker is considered running while it is a member of the mirror's Kafka Connect group. A
    killed worker remains a member for up to one minute.

    Args:
        sites: Clients of both clusters.

    Raises:
        UsageError: A worker is running. The message lists the hosts on which to stop `hourmark
            mirror run`.
        Unavailable: The central cluster does not respond.
    """
    if hosts := read_workers(sites.central, sites.alias).hosts:
        raise UsageError(
            f"{len(hosts)} workers of this mirror are in its group, on {', '.join(hosts)}; they "
            "would continue from the positions they know. Stop `hourmark mirror run` on each host "
            "and try again; a killed worker stays in the group for up to one minute"
        )


def reset_positions(
    work_dir: Path, sites: MirrorSites, positions: Sequence[StoredPosition]
) -> None:
    """Delete stored positions, so that the mirror copies their topic-partitions from the start.

    `mirror verify` and `mirror watch` store the offsets up to which records have been copied. These
    offsets are lowered first, so that both commands still detect records that are lost after the
    reset. The state of `mirror watch` is locked until the reset ends.

    Args:
        work_dir: `mirror.work_dir`, which contains the state of both commands.
        sites: Clients of both clusters.
        positions: Positions to delete.

    Raises:
        UsageError: A worker of this mirror is running, or the work folder cannot be used. Stop
            `hourmark mirror run` on each host and repeat the call.
        Unavailable: A cluster does not respond, a state file cannot be written, or another process
            holds its lock longer than the timeout.
    """
    check_no_worker_runs(sites)
    topics = {t.name: t for t in sites.topics()}
    there = [
        p
        for p in (one.partition for one in positions)
        if p.topic in topics and p.partition in topics[p.topic].partitions
    ]
    ids, starts = {name: t.topic_id for name, t in topics.items()}, sites.edge.starts(there)
    watched = WatchStateStore(work_dir)
    with watched.locked() as state:
        watched.save(lower_coverage(state, ids, starts))
        checks = VerificationState(work_dir, sites.edge.cluster_id())
        checks.lower_positions(ids, starts)
        checks.save()
        delete_positions(sites, positions)


def lower_coverage(
    state: WatchState, ids: Mapping[str, str], starts: Mapping[Partition, int]
) -> WatchState:
    """Lower the offsets that `mirror watch` considers copied, before positions are reset.

    After a reset, the mirror copies earlier offsets again. `PartitionState.covered` (the offset up
    to which all records were copied) is lowered accordingly. Otherwise, `mirror watch` would not
    detect records that are lost after the reset.

    Args:
        state: Current state of `mirror watch`; not modified.
        ids: Maps each edge topic name to its current topic id. A topic with a different id in
            `state` is left unchanged.
        starts: Maps each topic-partition to the first edge offset that is copied again. A stored
            offset that is already lower is kept.

    Returns:
        A copy of the state with the lower offsets.
    """

    def lowered(topic: str, partitions: Mapping[int, PartitionState]) -> dict[int, PartitionState]:
        covered = {
            n: min(known.covered, starts.get(Partition(topic, n), known.covered))
            for n, known in partitions.items()
        }
        return {
            n: dataclasses.replace(known, covered=covered[n]) for n, known in partitions.items()
        }

    topics = {
        name: dataclasses.replace(known, partitions=lowered(name, known.partitions))
        if ids.get(name) == known.topic_id
        else known
        for name, known in state.topics.items()
    }
    return dataclasses.replace(state, topics=topics)


def delete_positions(sites: MirrorSites, positions: Iterable[StoredPosition]) -> None:
    """Delete stored positions by writing a tombstone for each of their keys.

    Args:
        sites: Clients of both clusters.
        positions: Positions to delete.

    Raises:
        UsageError: A worker of this mirror is running. Stop `hourmark mirror run` on each host
            first.
        Unavailable: The central cluster does not respond.
    """
    check_no_worker_runs(sites)
    records = [(one.key.decode(), None) for one in positions]
    append_all(
        sites.central.settings,
        positions_topic(sites.alias),
        records,
        _KEY_BYTES_MAX,
        java_partitioning=True,
    )


@click.command(
    name="reset-offsets",
)
@config_option
@topic_option
@click.option(
    "--all",
    "all_positions",
    is_flag=True,
    help="Reset all positions of the topics in --topic, even those that are not past the log end.",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
def reset_offsets(
    config: Config, topics: tuple[str, ...], all_positions: bool, yes: bool, as_json: bool
) -> None:
    """Copy topics from the start again after they were deleted and recreated at the edge.

    After a topic was recreated, the mirror's position may be past the end of the topic's log. In
    this case, MirrorMaker 2 copies nothing, or only records after the old position, and reports no
    error. Stop every `hourmark mirror run` first, because the command refuses to run while a worker
    is in the group.

    Records that already exist on the central cluster are copied again. The ETL drops them as
    duplicates, but `hourmark mirror verify` reports them as doubled or foreign until retention
    deletes them. Records of the old topic that were not copied are lost, and `hourmark mirror
    verify` reports them too. If a topic on the central cluster was truncated, use --topic together
    with --all.

    \b
    Examples:
      hourmark mirror reset-offsets
      hourmark mirror reset-offsets --topic click --yes --json
    """
    set_up_logging(config.log_level)
    if all_positions and not topics:
        raise click.UsageError("--all requires --topic")
    sites = MirrorSites(config)
    check_no_worker_runs(sites)  # before the confirmation prompt
    selected = topic_filter(topics)
    found = read_stored_positions(sites, selected)
    if topics and not found:
        raise UsageError(
            f"the mirror has no position in {' or '.join(topics)}; `hourmark mirror lag` "
            "lists its topics"
        )
    chosen = found if all_positions else stale_positions(found)
    if chosen and not yes:
        click.echo("\n".join(map(str, chosen)), err=True)
        click.confirm(
            f"Copy {len(chosen)} topic-partitions from their beginning?", abort=True, err=True
        )
    if chosen:
        reset_positions(config.mirror.work_dir, sites, chosen)
    recreated = (
        []
        if chosen
        else [t for t in find_recreated_topics(config.mirror.work_dir, sites) if selected(t)]
    )
    if as_json:
        print_json({"reset": [one.as_object() for one in chosen], "recreated": recreated})
    elif chosen:
        click.echo("\n".join(f"reset  {one}" for one in chosen))
        click.echo(
            "start `hourmark mirror run` again on each host; `hourmark mirror lag` shows its "
            "progress"
        )
    else:
        click.echo(describe_no_stale_positions(recreated))
