"""`hourmark ledger`: checks the ledger, rebuilds a lost one, and migrates it up or down.

The check compares the ledger with itself, with storage and with the topics.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click
from sqlalchemy import Connection

from hourmark.clock import SystemClock
from hourmark.config.loading import Config, config_option
from hourmark.config.redaction import redact_setting
from hourmark.errors import Finding, UsageError
from hourmark.kafka.clients import Cluster
from hourmark.printing import json_option, print_json
from hourmark.rollback.version import VERSIONS
from hourmark.rules.rules_topic import read_rules
from hourmark_etl.ledger import migrations
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.downgrading import downgrade_ledger, restore_copy
from hourmark_etl.ledger.existing import open_existing_ledger
from hourmark_etl.operators.rollback import permanent_obstacles
from hourmark_etl.options import print_lines
from hourmark_etl.storage import open_storage

if TYPE_CHECKING:
    from hourmark_etl.recovery.rebuild_result import RebuildResult


@click.group()
def ledger() -> None:
    """The ETL's ledger (etl.ledger): check it, recreate a lost one, take it to another version's
    form.
    """


@ledger.command()
@json_option
@config_option
def check(as_json: bool, config: Config) -> None:
    """Compare the ledger with itself, with storage and with the topics. Changes nothing; exit 1 on findings.

    Checked: closed hours and frontier make one line; markers stand and say the same; no marker that the ledger does not know (it
    would be an older copy); groups add up to their files and are listed where they can be; staged files stand; offsets lie
    within their topics. May run beside the driver.

    \b
    Example:
      hourmark ledger check
    """
    from hourmark_etl.recovery.check import check_ledger  # loads Arrow

    with open_existing_ledger(config) as database:
        central = Cluster(config.kafka.central_cluster, "central")
        found = check_ledger(
            database, open_storage(config.storage), config.parsing.bucket_seconds, central
        )
        uuid, commit = database.identity()
    if as_json:
        findings = [dataclasses.asdict(f) for f in found]
        print_json({"ledger": uuid, "commit": commit, "findings": findings})
    else:
        print_lines(found)
        click.echo(f"ledger {uuid}, commit {commit}: {len(found)} findings")
    if found:
        raise Finding(
            f"{len(found)} findings. A ledger that does not know a marker is an older copy: "
            "restore the newest one, or make it "
            "anew by `hourmark ledger rebuild --into URL`; docs/operations.md says more"
        )


@ledger.command()
@click.option(
    "--into",
    required=True,
    metavar="URL",
    help="A ledger with nothing in it: sqlite:////path or postgresql://user@host/database.",
)
@json_option
@config_option
def rebuild(into: str, as_json: bool, config: Config) -> None:
    """Make a lost ledger anew, from markers, staged files and topics, into one with nothing in it. Stop the driver first.

    What a start or `types apply` made where the lost one was counts as that; a ledger that holds more is never overwritten.
    It has the lost one's frontiers and UUID; staging begins again where Kafka has what open hours need, and what it no longer has
    is listed from staged files. Afterwards set etl.ledger to it, and start the driver. Overrides and waivers are not rebuilt.

    \b
    Example:
      hourmark ledger rebuild --into sqlite:////var/lib/hourmark/rebuilt.sqlite
    """
    from hourmark_etl.recovery.rebuild import rebuild as make_anew  # loads Arrow
    from hourmark_etl.recovery.rebuild_result import RebuildSources

    central = config.kafka.central_cluster
    with Database(into) as target:
        outside = RebuildSources(
            storage=open_storage(config.storage),
            kafka=config.kafka,
            central=Cluster(central, "central"),
            rules=read_rules(config.kafka.edge),
            bucket_seconds=config.parsing.bucket_seconds,
            now_ms=SystemClock().now_ms(),
        )
        done = make_anew(outside, target, lambda line: click.echo(line, err=True))
    if as_json:
        print_json(dataclasses.asdict(done))
    else:
        print_lines(_told(done, into))


@ledger.command()
@config_option
def upgrade(config: Config) -> None:
    """Bring the ledger of an older version to this one's form, after a copy of it was made, as `hourmark etl run` does.

    \b
    Example:
      hourmark ledger upgrade
    """
    with open_existing_ledger(config, may_migrate=True) as database:
        uuid, commit = database.identity()
    click.echo(f"ledger {uuid}, commit {commit}: schema version {migrations.newest()}")


@ledger.command()
@click.option(
    "--to",
    "to",
    required=True,
    type=click.Choice(list(VERSIONS)),
    help="The version that is to go on with it.",
)
@click.option(
    "--restore",
    metavar="COPY",
    help="Put this copy back instead: a file, or on PostgreSQL a schema.",
)
@config_option
def downgrade(to: str, restore: str | None, config: Config) -> None:
    """Take the ledger back to the form of an older version, after a copy of it was made. Stop the driver first.

    What closed since stays closed. Refused where that version could not go on, with all reasons (`hourmark rollback check`).
    --restore puts back the copy that was made before the ledger was migrated, and only where nothing was closed, sealed or
    declared since: topics are staged again from where it stood. A driver that still runs ends at its next step.

    \b
    Examples:
      hourmark ledger downgrade --to 0.2.0
      hourmark ledger downgrade --to 0.2.0 --restore /var/lib/hourmark/ledger.sqlite.revision-2-commit-814
    """
    older = VERSIONS[to]
    open_existing_ledger(config).close()

    def may(connection: Connection) -> None:
        revision = migrations.revision_of(connection)
        assert revision is not None
        if restore is None and revision <= older.ledger:
            raise UsageError(
                f"{to} opens this ledger as it is, of schema version {revision}: start its driver"
            )
        if in_the_way := list(
            permanent_obstacles(connection, revision, older, config.parsing.bucket_seconds)
        ):
            raise Finding(
                f"{to} could not go on with this ledger, and it was not changed:\n"
                + "\n".join(map(str, in_the_way))
            )

    if restore is None:
        revision, copy = older.ledger, downgrade_ledger(config.etl.ledger, older.ledger, may)
    else:
        revision, copy = restore_copy(config.etl.ledger, restore, older.ledger, may)
    click.echo(f"the ledger has schema version {revision}; as it was before, it is kept in {copy}")
    click.echo(
        f"start the driver of {to} next: a driver of this version, or `hourmark ledger "
        "upgrade`, migrates it again"
    )


def _told(done: RebuildResult, into: str) -> list[str]:
    return [
        f"ledger {done.ledger}, commit {done.commit}: {done.types} types, {done.buckets} closed "
        "buckets, "
        f"{done.staged_files} staged files of what Kafka no longer holds",
        *(
            (
                f"{what}: hours that have begun cannot be proved; `hourmark bucket force` "
                "accepts it (of promises: --all-types)"
            )
            for what in done.lost
        ),
        *(f"note: {note}" for note in done.notes),
        f"set etl.ledger to {redact_setting(into)} (with its password), run `hourmark ledger "
        "check`, then start the driver",
    ]
