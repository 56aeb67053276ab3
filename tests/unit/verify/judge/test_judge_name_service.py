"""The judge reads HDFS with several NameNodes from the one that is active, and no other storage."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from tests.support.http_server import Answering, serving
from tests.support.judged.webhdfs_server import serve
from tests.support.ports import free_port

from hourmark_verify.judge.expectations import read_expectations
from hourmark_verify.judge.webhdfs import WebHdfsReader


class Standby(Answering):
    """A NameNode that is not active."""

    def do_GET(self) -> None:
        refusal = {"RemoteException": {"exception": "StandbyException", "message": "standby"}}
        self.answer(403, json.dumps(refusal).encode())


def test_standbys_and_dead_namenodes_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(b"content")
    dead = f"http://127.0.0.1:{free_port()}"
    with serving(Standby) as standby, serve(tmp_path) as active:
        addresses = f"{dead},http://{standby}/, {active}"
        with closing(WebHdfsReader(addresses, "me")) as reader:
            assert [entry.name for entry in reader.list("/folder")] == ["file"]
            with closing(reader.open("/folder/file").content) as content:
                assert content.read() == b"content"


def test_without_an_active_namenode_reading_fails() -> None:
    with serving(Standby) as standby:
        addresses = f"http://127.0.0.1:{free_port()},http://{standby}"
        with closing(WebHdfsReader(addresses, "me")) as reader:
            for read in (reader.list, reader.open):
                with pytest.raises(httpx.HTTPStatusError, match="403"):
                    read("/folder")


@pytest.mark.parametrize("root", ["s3://events/hourmark", "file:///data/hourmark"])
def test_another_storage_is_refused(tmp_path: Path, root: str) -> None:
    file = tmp_path / "expectations.json"
    file.write_text(
        json.dumps(
            {"webhdfs": "http://127.0.0.1:1", "root": root, "user": "me", "files": [], "types": {}}
        )
    )
    with pytest.raises(ValueError, match=r"(?s)root.*cannot read other storages"):
        read_expectations(file)
