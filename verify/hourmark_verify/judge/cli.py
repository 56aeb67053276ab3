"""`hourmark judge check` and `hourmark judge snapshot`.

Exit codes: 0 without findings, 1 with findings, 2 for wrong usage.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import httpx

from hourmark_verify.judge.check import verify_delivery
from hourmark_verify.judge.expectations import Expectations, read_expectations
from hourmark_verify.judge.snapshot import compare_snapshot, take_snapshot
from hourmark_verify.judge.webhdfs import WebHdfsReader

_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)


@click.group()
def judge() -> None:
    """Compare source files with closed buckets and dead letters, independently of the pipeline.

    EXPECTATIONS is a JSON file that names the source files and the WebHDFS address.
    """


@judge.command()
@click.argument("expectations", type=_FILE)
@click.option(
    "--snapshot",
    type=_FILE,
    help="Output file of an earlier `judge snapshot`, to report buckets that have changed since then.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
@click.pass_context
def check(context: click.Context, expectations: Path, snapshot: Path | None, as_json: bool) -> None:
    """Check that each source line appears exactly once, unaltered, in a bucket or a dead letter.

    EXPECTATIONS is a JSON file that names the buckets, the source files, which the judge reads
    itself, and how lines of each event type become events. The class `Expectations` in
    hourmark_verify/judge/expectations.py describes all keys.

    The exit code is 1 if there are findings, or if nothing was compared.

    \b
    Example of EXPECTATIONS, for lines in the form of RFC 5424 whose MSGID is app-log:
      {"webhdfs": "http://namenode:9870", "root": "/hourmark", "user": "hourmark",
       "files": [{"path": "/var/log/app/*.log*"}],
       "types": {"app-log": {"content": "msg-bytes", "field": "message"}}}
    """
    parsed = _read(expectations)
    with _connect(parsed) as hdfs:
        report = verify_delivery(parsed, hdfs)
        if snapshot is not None:
            compare_snapshot(hdfs, parsed.root, json.loads(snapshot.read_bytes()), report)
    click.echo(json.dumps(report.as_dict()) if as_json else report.as_text())
    context.exit(0 if report.passed else 1)


@judge.command()
@click.argument("expectations", type=_FILE)
@click.argument("output", type=click.Path(path_type=Path, dir_okay=False))
def snapshot(expectations: Path, output: Path) -> None:
    """Write the digests of all files in all closed buckets to OUTPUT, for `judge check --snapshot`."""
    parsed = _read(expectations)
    with _connect(parsed) as hdfs:
        taken = take_snapshot(hdfs, parsed.root)
    output.write_text(json.dumps(taken, indent=1))
    click.echo(f"{len(taken)} closed buckets", err=True)


def _read(file: Path) -> Expectations:
    try:
        return read_expectations(file)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


@contextmanager
def _connect(expectations: Expectations) -> Iterator[WebHdfsReader]:
    hdfs = WebHdfsReader(expectations.webhdfs, expectations.user)
    try:
        yield hdfs
    except (httpx.HTTPError, OSError) as error:
        raise click.ClickException(
            f"the verification is incomplete, because a file cannot be read: {error}"
        ) from error
    finally:
        hdfs.close()
