"""`hourmark mirror reset-offsets`."""

from __future__ import annotations

import click

from hourmark.config import Config, config_option
from hourmark.errors import UsageError
from hourmark.log import set_up_logging
from hourmark.printing import json_option, say_json
from hourmark_mirror.plan_cli import selected, topic_option
from hourmark_mirror.resetting import begin_anew, kept, refuse_beside_workers, stale
from hourmark_mirror.sites import Sites


@click.command(
    name="reset-offsets",
    epilog="Examples:  hourmark mirror reset-offsets    hourmark mirror reset-offsets --topic click --yes --json",
)
@config_option
@topic_option
@click.option("--all", "also_well", is_flag=True, help="All positions of the topics named, whether or not any looks stale.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def reset_offsets(config: Config, topics: tuple[str, ...], also_well: bool, yes: bool, as_json: bool) -> None:
    """Let the mirror begin anew with topics that were deleted and made again: of which a position lies past the edge's end.

    Until then nothing is copied there, or only what comes after the old position, and MirrorMaker 2 says nothing of it. End every
    `hourmark mirror run` first: beside a worker it is refused. What is on the target already is copied a second time, and dropped
    as duplicate by the ETL; `hourmark mirror verify` names it as doubled or foreign until the target's retention has deleted it.
    What the old topic held and was not copied is gone: `verify` names it. --topic with --all is for a target that was truncated.
    """
    set_up_logging(config.log_level)
    if also_well and not topics:
        raise click.UsageError("--all wants the topics to be named: --topic")
    sites = Sites(config)
    refuse_beside_workers(sites)  # before anybody is asked
    found = kept(sites, selected(topics))
    if topics and not found:
        raise UsageError(f"the mirror has no position in {' or '.join(topics)}: `hourmark mirror lag` names its topics")
    chosen = found if also_well else stale(found)
    if chosen and not yes:
        click.echo("\n".join(map(str, chosen)), err=True)
        click.confirm(f"Copy {len(chosen)} topic-partitions from their beginning?", abort=True, err=True)
    if chosen:
        begin_anew(config.mirror.work_dir, sites, chosen)
    if as_json:
        say_json({"reset": [one.as_object() for one in chosen]})
    elif chosen:
        click.echo("\n".join(f"reset  {one}" for one in chosen))
        click.echo("start `hourmark mirror run` again on each host; `hourmark mirror lag` shows how it copies")
    else:
        click.echo("nothing to do: no position lies past the edge's end; --topic with --all begins anew all the same")
