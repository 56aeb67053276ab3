"""A server with the API of S3 whose responses are lost, one by one: the client repeats requests, is
told that its own object exists already, and each write still happens exactly once.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.bucket_world import World, some_ids
from tests.support.lossy_http import LOSSES, Loss, LossyProxy, lossy_proxy
from tests.support.records import HOUR

from hourmark.config.groups import StorageSettings
from hourmark_etl.buckets.verify import BucketFault, verify_bucket
from hourmark_etl.storage import AlreadyExists, Storage, StorageError, open_storage
from hourmark_etl.storage.folders import ATTEMPTS_FOLDER

pytestmark = pytest.mark.long  # as the server is not part of the stack


@pytest.fixture(scope="module")
def proxy(s3: StorageSettings) -> Iterator[LossyProxy]:
    with lossy_proxy(s3.s3_endpoint) as made:
        yield made


def open_behind(proxy: LossyProxy, s3: StorageSettings) -> Storage:
    """An empty root."""
    return open_storage(
        s3.model_copy(
            update={"root": f"{s3.root}/{uuid.uuid4().hex}", "s3_endpoint": proxy.address}
        )
    )


@pytest.mark.parametrize("losses", [*itertools.product(LOSSES), *itertools.product(LOSSES, LOSSES)])
def test_an_object_is_created_once_whatever_responses_are_lost(
    proxy: LossyProxy, s3: StorageSettings, losses: tuple[Loss, ...]
) -> None:
    storage = open_behind(proxy, s3)
    proxy.lose(dict(enumerate(losses, 1)))
    storage.write_new("file", b"content")
    assert len(proxy.changes) > 1 or losses == ("error after",)
    assert storage.read("file") == b"content"
    proxy.lose(dict(enumerate(losses, 1)))
    with pytest.raises(AlreadyExists):
        storage.write_new("file", b"content")


@pytest.mark.parametrize("loss", LOSSES)
def test_a_bucket_is_whole_whatever_response_is_lost(
    proxy: LossyProxy, s3: StorageSettings, loss: Loss, tmp_path: Path
) -> None:
    for number in itertools.count(1):
        storage = open_behind(proxy, s3)
        world = World(tmp_path / str(number), storage, bucket_format="avro+parquet")
        groups = world.stage(some_ids(30, HOUR))
        proxy.lose({number: loss})
        try:
            manifest = world.close(HOUR, groups, indexed=False)
        except StorageError:  # the next round
            manifest = world.close(HOUR, groups, indexed=False)
        world.database.close()
        found = {of.kind for of in verify_bucket(storage, "click", HOUR).findings}
        assert found <= {BucketFault.SCHEMA}, "a test has no fingerprints"
        assert manifest.parquet and manifest.events == 30
        assert not storage.exists(f"{ATTEMPTS_FOLDER}/{manifest.attempt}")
        if len(proxy.changes) < number:
            break
    assert number > 8
