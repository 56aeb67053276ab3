"""`hourmark bucket copy`: copies closed buckets to another storage, with verified content."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any, Final, cast

import click

from hourmark.config.loading import Config, config_option, load_config
from hourmark.errors import Finding, UsageError
from hourmark.printing import json_option, print_json
from hourmark_etl.buckets.copying import (
    BucketCopier,
    CopyOutcome,
    copy_folder,
    list_earlier_runs,
)
from hourmark_etl.buckets.reader import NotClosed, list_hours, list_types
from hourmark_etl.humanize import format_count
from hourmark_etl.operators.buckets.listing import BucketSelection
from hourmark_etl.operators.buckets.text import format_table
from hourmark_etl.operators.dead_letter_reader import ReadProgress
from hourmark_etl.options import parse_first_hour, parse_last_hour, print_lines
from hourmark_etl.storage import (
    FolderStorage,
    ObjectStorage,
    Storage,
    StorageError,
    open_storage,
)
from hourmark_etl.storage.folders import (
    INDEX_FOLDER,
    LEDGER_FOLDER,
    STAGING_FOLDER,
    UNAUDITED_FOLDER,
)

_COLUMNS: Final = (
    "type",
    "copied",
    "present",
    "removed",
    "bytes_copied",
    "tombstones",
    "last_hour",
)
_ETL_FOLDERS: Final = (STAGING_FOLDER, UNAUDITED_FOLDER, INDEX_FOLDER, LEDGER_FOLDER)


@click.command()
@click.argument("event_type", metavar="[TYPE]", required=False)
@click.option(
    "--to-config",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    required=True,
    help="Configuration file (TOML) whose `storage` settings describe the target.",
)
@click.option(
    "--type",
    "patterns",
    metavar="PATTERN",
    multiple=True,
    help="Copy only types whose names match, such as 'page-*' (repeatable), in addition to TYPE.",
)
@click.option("--from", "from_hour", metavar="HOUR", help="First hour to copy.")
@click.option("--to", "to_hour", metavar="HOUR", help="Last hour to copy.")
@click.option(
    "--etl-files",
    is_flag=True,
    help="Also copy the internal files of the ETL, which must be stopped.",
)
@click.option("--dry-run", is_flag=True, help="Only print what would be copied.")
@json_option
@config_option
def copy(
    event_type: str | None,
    to_config: Path,
    patterns: tuple[str, ...],
    from_hour: str | None,
    to_hour: str | None,
    etl_files: bool,
    dry_run: bool,
    as_json: bool,
    config: Config,
) -> None:
    """Copy closed buckets to another storage, and verify each byte of the copy.

    Each file is compared with the digest in the marker of its bucket, and read back from the
    target. A bucket appears on the target with one rename, so the target must be HDFS or a local
    folder. The command never replaces anything on the target, and deletes nothing on the source. If
    it is interrupted, run it again: buckets that the target has, or has removed by its own
    retention, are not copied again.

    Tombstones of removed buckets are also copied unless the target has the buckets, so the chain of
    markers of each type is complete. With --from, the chain on the target begins at the first
    copied hour.

    To continue the ETL on the target, stop the driver, run this command with --etl-files, and
    change storage.root in the configuration of the ETL.

    \b
    Examples:
      hourmark bucket copy --to-config new.toml --dry-run
      hourmark bucket copy --to-config new.toml
      hourmark bucket copy end-song --to-config archive.toml --to 2026-11-21T23
      hourmark bucket copy --to-config new.toml --etl-files
    """
    if dry_run and etl_files:
        raise UsageError("--dry-run lists only buckets; omit --etl-files")
    source, target = open_storage(config.storage), _open_target(to_config)
    _check_roots(source, target, to_config)
    selection = BucketSelection(
        patterns=(*patterns, *filter(None, [event_type])),
        first=None if from_hour is None else parse_first_hour(from_hour, config),
        last=None if to_hour is None else parse_last_hour(to_hour, config),
    )
    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    internal: dict[str, int] = {}
    try:
        copier = BucketCopier(source, target, uuid.uuid4().hex)
        for name in selection.match_types(list_types(source), source.url("")):
            row: dict[str, Any] = dict.fromkeys(_COLUMNS, 0) | {"type": name, "last_hour": None}
            rows.append(row)
            try:
                _copy_type(source, copier, config, selection, row, dry_run=dry_run)
            except StorageError:
                raise
            except (Finding, NotClosed) as error:
                problems.append(str(error))
        if not dry_run:
            copier.delete_temporary_files()
        if etl_files and not problems:
            internal |= _copy_etl_files(source, target)
    finally:  # what was copied before an error, too
        _print_result(rows, internal, problems, as_json=as_json, dry_run=dry_run)
    if problems:
        raise Finding("; ".join(problems))


def _open_target(to_config: Path) -> FolderStorage:
    target = open_storage(load_config(to_config).storage)
    if isinstance(target, ObjectStorage):
        raise UsageError(
            f"storage.root of {to_config} is {target.url('')}, but buckets cannot be copied to an "
            "object store, because the copy is published with a rename. Copy to HDFS or to a local "
            "folder; to continue on an object store, use a new root and a new ledger "
            "(docs/how-to/s3.md)"
        )
    return cast(FolderStorage, target)  # each other storage has folders


def _check_roots(source: Storage, target: Storage, to_config: Path) -> None:
    roots = [f"{storage.url('').rstrip('/')}/" for storage in (source, target)]
    if roots[0].startswith(roots[1]) or roots[1].startswith(roots[0]):
        raise UsageError(
            f"storage.root of {to_config} is {target.url('')}, but the root to copy from is "
            f"{source.url('')}; neither may contain the other. Environment variables override both "
            "files"
        )
    for folder in list_earlier_runs(target):
        click.echo(
            f"{target.url(folder)} is the temporary folder of another copy; delete it unless that "
            "copy is running",
            err=True,
        )


def _copy_type(
    source: Storage,
    copier: BucketCopier,
    config: Config,
    selection: BucketSelection,
    row: dict[str, Any],
    *,
    dry_run: bool,
) -> None:
    name = row["type"]
    if selection.first is None:
        row["tombstones"] = (
            len(copier.list_missing_tombstones(name)) if dry_run else copier.copy_tombstones(name)
        )
    hours = list_hours(source, name, config.parsing.bucket_seconds, selection.first, selection.last)
    action = "compared" if dry_run else "copied"
    progress = ReadProgress(len(hours), _print_progress, f"buckets of {name}", action)
    copied = (copier.plan_buckets if dry_run else copier.copy_buckets)(name, hours)
    for hour, manifest, outcome in copied:
        row["last_hour"] = str(hour)
        row[str(outcome)] += 1
        if outcome is CopyOutcome.COPIED:
            row["bytes_copied"] += sum(file.bytes for file in manifest.all_files)
        progress.count_step()


def _print_progress(text: str) -> None:
    click.echo(text, err=True)


def _copy_etl_files(source: Storage, target: Storage) -> dict[str, int]:
    return {folder: copy_folder(source, target, folder)[0] for folder in _ETL_FOLDERS}


def _print_result(
    rows: list[dict[str, Any]],
    internal: dict[str, int],
    problems: list[str],
    *,
    as_json: bool,
    dry_run: bool,
) -> None:
    if as_json:
        result = {"types": rows, "etl_files": internal, "problems": problems, "dry_run": dry_run}
        print_json(result)
    else:
        print_lines(format_table(rows, _COLUMNS, ("type", "last_hour")))
        print_lines(
            f"{folder}: {format_count(copied, 'file')} copied"
            for folder, copied in internal.items()
        )
    if dry_run:
        click.echo("nothing was copied, because of --dry-run", err=True)
