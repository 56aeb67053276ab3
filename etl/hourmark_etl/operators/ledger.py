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
from hourmark_etl.closing.publication.choice import open_publication
from hourmark_etl.ledger import migrations
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.maintenance.downgrading import downgrade_ledger, restore_copy
from hourmark_etl.ledger.maintenance.existing import open_existing_ledger
from hourmark_etl.operators.rollback import permanent_obstacles
from hourmark_etl.options import print_lines
from hourmark_etl.storage import open_storage

if TYPE_CHECKING:
    from hourmark_etl.recovery.rebuild_result import RebuildResult


@click.group()
def ledger() -> None:
    """Check, rebuild, upgrade or downgrade the ETL's ledger (setting etl.ledger)."""


@ledger.command()
@json_option
@config_option
def check(as_json: bool, config: Config) -> None:
    """Check the consistency of the ledger with itself, with storage and with the topics.

    The command changes nothing, and the driver may be running. The exit code is 1 if there are
    findings. The command checks the following conditions:

    \b
    - the closed hours of each type are contiguous, up to its oldest open hour
    - the bucket of each closed hour has a marker with the same content as the ledger
    - every marker on storage is also in the ledger; if not, the ledger may be an old copy
    - groups of staged rows add up to their files and are assigned to possible buckets
    - staged files exist
    - offsets are within their topics

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
            f"{len(found)} findings. If the ledger does not contain a marker, it is an older "
            "copy: restore the newest one, or recreate it with `hourmark ledger rebuild --into "
            "URL`; see docs/operate/back-up-and-restore.md"
        )


@ledger.command()
@click.option(
    "--into",
    required=True,
    metavar="URL",
    help="URL of an empty ledger: sqlite:////path or postgresql://user@host/database.",
)
@json_option
@config_option
def rebuild(into: str, as_json: bool, config: Config) -> None:
    """Rebuild a lost ledger in an empty database from markers, staged files and topics.

    Stop the driver first. A ledger counts as empty if it was created by the start of a driver or by
    `types apply`, and has no other contents. Any other ledger is never overwritten.

    The rebuilt ledger has the UUID and the open hours of the lost one. Staging resumes at the first
    offsets that open hours need; rows that Kafka no longer has are taken from staged files.
    Overrides and waivers are not rebuilt. Afterwards, set etl.ledger to the new URL and start the
    driver.

    \b
    Example:
      hourmark ledger rebuild --into sqlite:////var/lib/hourmark/rebuilt.sqlite
    """
    from hourmark_etl.recovery.rebuild import rebuild as make_anew  # loads Arrow
    from hourmark_etl.recovery.rebuild_result import RebuildSources

    central, storage = config.kafka.central_cluster, open_storage(config.storage)
    with Database(into) as target:
        open_publication(storage).complete_interrupted()  # their markers are read below
        outside = RebuildSources(
            storage=storage,
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
        print_lines(_describe_rebuild(done, into))


@ledger.command()
@config_option
def upgrade(config: Config) -> None:
    """Copy the ledger of an older version, then migrate it to the schema of this version.

    The command `hourmark etl run` also does this when it starts.

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
    help="Older version that will use the ledger.",
)
@click.option(
    "--restore",
    metavar="COPY",
    help="Copy to restore instead: a file or, on PostgreSQL, a schema.",
)
@config_option
def downgrade(to: str, restore: str | None, config: Config) -> None:
    """Copy the ledger, then migrate it down to the schema of an older version.

    Stop the driver first. A driver that is still running ends at its next step. Closed buckets stay
    closed. If the older version could not continue with the ledger, the command changes nothing and
    prints all reasons. The command `hourmark rollback check` prints them too.

    With --restore, the command instead restores the copy that was made before the ledger was
    migrated up. It refuses this if an hour was closed or sealed, or a type was declared, since then.
    After that, topics are staged again from the offsets in the copy.

    \b
    Examples:
      hourmark ledger downgrade --to 0.2.0
      hourmark ledger downgrade --to 0.2.0 --restore /var/lib/hourmark/ledger.sqlite.revision-2-commit-814
    """
    older = VERSIONS[to]
    open_existing_ledger(config).close()

    def may(connection: Connection) -> None:
        revision = migrations.read_revision(connection)
        assert revision is not None
        if restore is None and revision <= older.ledger:
            raise UsageError(
                f"no downgrade is needed: {to} supports this ledger's schema version {revision}; "
                "start its driver"
            )
        if obstacles := list(
            permanent_obstacles(connection, revision, older, config.parsing.bucket_seconds)
        ):
            raise Finding(
                f"{to} could not continue with this ledger; nothing was changed. Obstacles:\n"
                + "\n".join(map(str, obstacles))
            )

    if restore is None:
        revision, copy = older.ledger, downgrade_ledger(config.etl.ledger, older.ledger, may)
    else:
        revision, copy = restore_copy(config.etl.ledger, restore, older.ledger, may)
    click.echo(
        f"the ledger has schema version {revision}; a copy from before the change is in {copy}"
    )
    click.echo(
        f"start the driver of {to} next; a driver of this version, or `hourmark ledger upgrade`, "
        "would migrate the ledger again"
    )


def _describe_rebuild(done: RebuildResult, into: str) -> list[str]:
    return [
        f"ledger {done.ledger}, commit {done.commit}: {done.types} types, {done.buckets} closed "
        f"buckets, {done.staged_files} staged files with records that Kafka no longer has",
        *(
            (
                f"{what}: hours that have begun cannot be proved; to close them without a proof, "
                "use `hourmark bucket force` (for promises: --all-types)"
            )
            for what in done.lost
        ),
        *(f"note: {note}" for note in done.notes),
        f"set etl.ledger to {redact_setting(into)} (with its password), run `hourmark ledger "
        "check`, then start the driver",
    ]
