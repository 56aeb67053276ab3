"""A closed bucket on the real HDFS, read as docs/operate/list-buckets.md says: by a client that is not
Hourmark's.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from tests.support.buckets import HOUR, TYPE, usual_plan
from tests.support.documents import ROOT, code_blocks

from hourmark.config.groups import StorageSettings
from hourmark_etl.storage import open_storage

PAGE = ROOT / "docs" / "operate" / "list-buckets.md"


def snippet() -> str:
    """The documented lines of Python."""
    (found,) = code_blocks(PAGE.read_text(), "python")
    return found


def replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, old
    return text.replace(old, new)


@pytest.mark.stack
def test_a_stock_client_reads_what_a_closed_bucket_holds(
    own_hdfs: StorageSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = usual_plan(open_storage(own_hdfs))
    events = plan.close().events
    code = replaced(snippet(), "http://namenode:9870", own_hdfs.webhdfs)
    code = replaced(code, 'user="reader"', f'user="{own_hdfs.user}"')
    code = replaced(
        code,
        "/hourmark/page-viewed/date=2026-11-21/hour=05",
        f"{urlsplit(own_hdfs.root).path}/{HOUR.bucket_path(TYPE)}",
    )
    exec(compile(code, str(PAGE), "exec"), {})
    told = capsys.readouterr().out.splitlines()
    ids = sorted(event_id.hex() for datums in plan.files.values() for event_id, _ in datums)
    assert len(told) == events == len(ids)
    assert sorted(line.split()[0] for line in told) == ids
