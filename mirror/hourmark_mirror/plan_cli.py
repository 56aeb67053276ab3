"""`hourmark mirror status`, `plan` and `apply`: running workers and configuration differences."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import click

from hourmark.config.loading import Config, config_option
from hourmark.config.redaction import redact_setting
from hourmark.kafka.topic_names import events_topic
from hourmark.log import set_up_logging
from hourmark.printing import json_option, print_json
from hourmark_mirror.run.process import installed_version
from hourmark_mirror.run.worker_group import WorkerGroup, read_worker_group
from hourmark_mirror.settings.mirror_sites import MirrorSites
from hourmark_mirror.settings.properties import TARGET_ALIAS, mirror_maker_properties
from hourmark_mirror.topics.planning import (
    DifferenceKind,
    MirrorDifference,
    connector_differences,
    connector_settings,
    missing_worker_differences,
    version_differences,
)
from hourmark_mirror.topics.remote_topics import apply_differences, remote_topic_differences

topic_option = click.option(
    "--topic", "topics", multiple=True, help="Consider only this topic or event type (repeatable)."
)


class _Plan(NamedTuple):
    sites: MirrorSites
    differences: list[MirrorDifference]


@click.command()
@config_option
@json_option
def status(config: Config, as_json: bool) -> None:
    """Show the workers of this mirror, their tasks and versions, and the settings in force.

    The command reads this information from the central cluster, so you can run it on any host. The
    output identifies each worker by its host. Secrets are redacted.

    \b
    Examples:
      hourmark mirror status
      hourmark mirror status --json | jq .settings
    """
    sites = MirrorSites(config)
    group = read_worker_group(sites.central.settings, sites.alias)
    if as_json:
        print_json(status_to_json(sites.alias, group, installed_version(config.mirror.classpath)))
        return
    click.echo(
        "\n".join(format_status(sites.alias, group, installed_version(config.mirror.classpath)))
    )


def status_to_json(site: str, group: WorkerGroup, installed: str) -> dict[str, object]:
    """Convert the status of a mirror to a JSON-serializable dict. Secrets are redacted.

    Args:
        site: Alias of the edge cluster.
        group: Workers, task states and connector settings.
        installed: MirrorMaker 2 version installed on this host; empty if unknown.

    Returns:
        A dict with the keys `site`, `workers` (hosts), `leader`, `installed_version`, `running`
        (maps connector and task names to states) and `settings` (maps setting names to values). The
        leader or a version is None if unknown.
    """
    states = {
        name: {
            "state": s.state,
            "worker": s.worker,
            "version": s.version or None,
            "cause": s.cause if s.state == "FAILED" else None,
        }
        for name, s in group.states.items()
    }
    return {
        "site": site,
        "workers": list(group.workers.hosts),
        "leader": group.workers.leader.address or None,
        "installed_version": installed or None,
        "running": states,
        "settings": redact_setting(dict(sorted(group.settings.items()))),
    }


def format_status(site: str, group: WorkerGroup, installed: str) -> Iterator[str]:
    """Format the status of a mirror as lines of text. Secrets are redacted.

    Args:
        site: Alias of the edge cluster.
        group: Workers, task states and connector settings.
        installed: MirrorMaker 2 version installed on this host; empty if unknown.

    Yields:
        A line that lists the workers, a line with the installed version, one line for each
        connector or task, and one line for each connector setting.
    """
    hosts = f" on {', '.join(group.workers.hosts)}" if group.workers.hosts else ""
    yield (
        f"site {site}: {len(group.workers.hosts)} workers{hosts}, led by "
        f"{group.workers.leader.address or 'no worker'}"
    )
    yield f"MirrorMaker 2 installed here: {installed or 'unknown'}"
    if not group.workers.hosts:
        yield "no worker is running: the following states are the last ones reported"
    for name, s in group.states.items():
        if s.state != "UNASSIGNED":
            cause = f": {s.cause}" if s.state == "FAILED" else ""
            yield f"  {name:<30} {s.state:<10} {s.worker}  {s.version}{cause}"
    yield "settings in force:"
    yield from (
        f"  {name} = {redact_setting(value, name)}"
        for name, value in sorted(group.settings.items())
    )


@click.command()
@config_option
@topic_option
@json_option
def plan(config: Config, topics: tuple[str, ...], as_json: bool) -> None:
    """Show how remote topics and running workers differ from the edge and the configuration.

    The command changes nothing. It exits with code 1 if there is a difference. It compares the
    following properties:

    \b
    - topics: whether they exist, their partitions, retention, message size and policies
    - workers: whether one is running, their connector settings and versions, and whether other
      hosts can reach the leader

    \b
    Examples:
      hourmark mirror plan
      hourmark mirror plan --topic click --json
    """
    set_up_logging(config.log_level)
    found = _plan(config, topics).differences
    if as_json:
        print_json({"ok": not found, "differences": [d.as_object() for d in found]})
    else:
        click.echo("\n".join(format_plan(found)))
    sys.exit(1 if found else 0)


@click.command()
@config_option
@topic_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
def apply(config: Config, topics: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Create remote topics, add partitions and change settings to match the edge cluster.

    The command can be repeated safely. If it shortens the retention of a topic, Kafka deletes older
    records on the central cluster. Workers read changed settings only at startup, so restart
    `hourmark mirror run` on each host. The command lists the remaining differences, and exits with
    code 1 if there are any.

    \b
    Examples:
      hourmark mirror apply
      hourmark mirror apply --yes --json
    """
    set_up_logging(config.log_level)
    planned = _plan(config, topics)
    to_do = [d for d in planned.differences if d.applicable]
    if to_do and not yes:
        click.echo("\n".join(format_plan(planned.differences)), err=True)
        click.confirm(
            f"Change {len({d.subject for d in to_do})} topics of the central cluster?",
            abort=True,
            err=True,
        )
    apply_differences(config, planned.sites, to_do)
    left = _plan(config, topics).differences if to_do else planned.differences
    if as_json:
        print_json(
            {
                "ok": not left,
                "applied": [d.as_object() for d in to_do],
                "left": [d.as_object() for d in left],
            }
        )
    else:
        click.echo("\n".join([*(f"done  {d}" for d in to_do), *format_plan(left)]))
    sys.exit(1 if left else 0)


def _plan(config: Config, topics: Sequence[str]) -> _Plan:
    sites = MirrorSites(config)
    found = remote_topic_differences(config, sites, topic_filter(topics))
    group = read_worker_group(sites.central.settings, sites.alias)
    wanted = connector_settings(mirror_maker_properties(config), sites.alias, TARGET_ALIAS)
    found += missing_worker_differences(group.workers.hosts)
    found += connector_differences(wanted, group.settings)
    found += version_differences(
        installed_version(config.mirror.classpath), (s.version for s in group.states.values())
    )
    if group.workers.is_split:
        leader = group.workers.leader.address
        found.append(
            MirrorDifference(
                DifferenceKind.RESTART,
                "worker",
                "mirror.rest_host",
                leader,
                "a name by which other hosts reach it",
            )
        )
    return _Plan(sites, found)


def topic_filter(topics: Sequence[str]) -> Callable[[str], bool]:
    """Return a predicate that selects edge topics by topic name or event type.

    Args:
        topics: Topic names or event type names; empty to select every topic. Unknown names are
            ignored.

    Returns:
        A function that takes the name of an edge topic, and returns whether the topic is selected.
    """
    return lambda topic: not topics or any(topic in (name, events_topic(name)) for name in topics)


def format_plan(differences: Sequence[MirrorDifference]) -> Iterator[str]:
    """Format the differences of a mirror as lines of text, followed by the manual steps.

    Args:
        differences: Differences between the actual and the expected state. If empty, a single line
            states that there is nothing to do.

    Yields:
        One line for each difference, then one line for each step that `apply` does not perform.
    """
    yield from (f"{'apply' if d.applicable else d.kind.value:<20}  {d}" for d in differences)
    if not differences:
        yield (
            "nothing to do: remote topics match those of the edge, and workers run with "
            "these settings"
        )
    if any(d.kind is DifferenceKind.START for d in differences):
        yield "start `hourmark mirror run`: no worker is running, so nothing is copied"
    if any(d.kind is DifferenceKind.RESTART for d in differences):
        yield (
            "restart `hourmark mirror run` on each host with the same settings; workers read them "
            "only at startup"
        )
    if any(d.kind is DifferenceKind.TOO_MANY_PARTITIONS for d in differences):
        yield (
            "Kafka cannot remove partitions; `hourmark mirror verify` lists the records in "
            "partitions that the edge does not have"
        )
