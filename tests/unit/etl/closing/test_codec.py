"""The codec of new buckets: what is set, or else what the site's buckets have."""

from __future__ import annotations

import io
import logging
from pathlib import Path
from typing import Any

import fastavro
import pytest
from tests.support.closing import arrive, hour, manifest, poll, send, settle, until
from tests.support.rebuilding import begin, lose_ledger
from tests.support.simulator.world import World

from hourmark.config.groups import AvroCodec
from hourmark.records.hours import Hour
from hourmark_etl.buckets.reader import read_events, read_manifest
from hourmark_etl.buckets.verify import find_late_clashes, verify_bucket


def restart(world: World, codec: AvroCodec | None) -> World:
    """Another closer, whose configuration sets this codec."""
    etl = world.config.etl.model_copy(update={"avro_codec": codec})
    world.config = world.config.model_copy(update={"etl": etl})
    world.closer_database.close()
    world.start_closer()
    return world


def close(world: World, at: Hour, *, late_of: Hour | None = None) -> str | None:
    """Close the hour with events, also late ones of an earlier hour; the codec in its files."""
    send(world, ["click", "view"], at.start_s * 1000 + 1000)
    if late_of is not None:
        send(world, ["click"], late_of.start_s * 1000 + 2000)
    until(world, at)
    settle(world)
    return codec_of(world, at)


def codec_of(world: World, at: Hour) -> str | None:
    """In the headers of the bucket's files, of which its marker must agree; None: no files."""
    found = manifest(world, "click", at)
    folder = at.bucket_path("click")
    readers: list[Any] = [
        fastavro.reader(io.BytesIO(world.storage.read(f"{folder}/{f.name}"))) for f in found.files
    ]
    codecs = {reader.codec for reader in readers}
    assert codecs == {found.files_codec} - {None}
    return found.files_codec


def events(world: World, at: Hour) -> int:
    found = read_manifest(world.storage, "click", at)
    return len(list(read_events(world.storage, "click", at, found)))


def test_a_new_root_has_deflate_also_after_hours_without_events(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    settle(world, hour(0))
    assert codec_of(world, hour(0)) is None
    with caplog.at_level(logging.INFO):
        restart(world, None)
    (line,) = [record.message for record in caplog.records if "avro_codec" in record.message]
    assert line == (
        "new buckets have avro_codec=deflate: etl.avro_codec is not set, and no closed bucket has "
        "files"
    )
    assert close(world, hour(1)) == "deflate"


def test_a_site_of_zstandard_keeps_it_until_another_codec_is_set(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    restart(world, "zstandard")
    assert close(world, hour(0)) == "zstandard"
    with caplog.at_level(logging.INFO):
        restart(world, None)
    assert "avro_codec=zstandard: etl.avro_codec is not set, and click 20" in caplog.text
    assert close(world, hour(1)) == "zstandard"
    restart(world, "deflate")
    assert close(world, hour(2)) == "deflate"
    restart(world, None)
    assert close(world, hour(3)) == "deflate"


def test_buckets_of_both_codecs_are_verified_searched_and_read(
    world: World, tmp_path: Path
) -> None:
    restart(world, "zstandard")
    close(world, hour(0))
    close(world, hour(1), late_of=hour(0))
    restart(world, "deflate")
    close(world, hour(2), late_of=hour(0))
    close(world, hour(3), late_of=hour(2))
    hours = [hour(n) for n in range(4)]
    reports = [verify_bucket(world.storage, "click", at) for at in hours]
    assert [report.findings for report in reports] == [()] * 4
    assert find_late_clashes(world.storage, "click", reports) == []
    assert [events(world, at) for at in hours] == [1, 2, 2, 2]
    world.judge.check_end()


@pytest.mark.parametrize("codec", ["zstandard", "deflate"])
def test_a_rebuilt_ledger_has_the_same_codec(world: World, codec: AvroCodec) -> None:
    begin(world)
    restart(world, codec)
    close(world, hour(0))
    lose_ledger(world)
    assert world.config.etl.avro_codec is None
    send(world, ["click", "view"], hour(1).start_s * 1000 + 1000)
    arrive(world)
    until(world, hour(1))
    world.producers.report(0)
    poll(world)
    assert codec_of(world, hour(1)) == codec
