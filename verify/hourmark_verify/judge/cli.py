"""`hourmark judge check` and `hourmark judge snapshot`.

Exit 0: content; 1: it found something; 2: wrong use.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import httpx

from hourmark_verify.judge.check import verify_delivery as compare
from hourmark_verify.judge.expectations import Expectations, read_expectations
from hourmark_verify.judge.snapshot import compare_snapshot, take_snapshot
from hourmark_verify.judge.webhdfs import WebHdfsReader

_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)


@click.group()
def judge() -> None:
    """Compare source files with buckets and dead letters, sharing no code with what made them.

    EXPECTATIONS is a JSON file that names the source files, and HDFS by its WebHDFS address.
    """


@judge.command()
@click.argument("expectations", type=_FILE)
@click.option(
    "--snapshot",
    type=_FILE,
    help="Taken before by `judge snapshot`: object to buckets that changed since.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.pass_context
def check(context: click.Context, expectations: Path, snapshot: Path | None, as_json: bool) -> None:
    """Is each line of each source file exactly once in a closed bucket or in dead letters,
    unaltered?
    """
    told = _read(expectations)
    with _reading(told) as hdfs:
        report = compare(told, hdfs)
        if snapshot is not None:
            compare_snapshot(hdfs, told.root, json.loads(snapshot.read_bytes()), report)
    click.echo(json.dumps(report.as_dict()) if as_json else report.as_text())
    context.exit(0 if report.content else 1)


@judge.command()
@click.argument("expectations", type=_FILE)
@click.argument("output", type=click.Path(path_type=Path, dir_okay=False))
def snapshot(expectations: Path, output: Path) -> None:
    """Record in OUTPUT the digests of all files of all buckets that are closed now."""
    told = _read(expectations)
    with _reading(told) as hdfs:
        taken = take_snapshot(hdfs, told.root)
    output.write_text(json.dumps(taken, indent=1))
    click.echo(f"{len(taken)} closed buckets", err=True)


def _read(file: Path) -> Expectations:
    try:
        return read_expectations(file)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


@contextmanager
def _reading(told: Expectations) -> Iterator[WebHdfsReader]:
    hdfs = WebHdfsReader(told.webhdfs, told.user)
    try:
        yield hdfs
    except (httpx.HTTPError, OSError) as error:
        raise click.ClickException(
            f"something cannot be read, so there is no verdict: {error}"
        ) from error
    finally:
        hdfs.close()
