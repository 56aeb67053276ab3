"""Single bits are flipped in a real broker's log: every flip is an error that names the partition,
or changes nothing.

`HOURMARK_FLIPS=2000 pytest tests/integration/test_flipped_log_bits.py -k anywhere`: as many for
each codec.
"""

from __future__ import annotations

import os
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from tests.support.plain_broker import PlainBroker, Record

import hourmark_native as native
from hourmark.config.groups import KafkaCluster
from hourmark.errors import Unavailable
from hourmark.kafka.clients import Partition, supports_native_client
from hourmark.kafka.committed_reader import CommittedReader
from hourmark.kafka.packed_reader import PackedReader
from hourmark_infra.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]
HEADER = 61  # bytes of a batch before its records
# what lies before is not in the CRC: base offset, length, leader epoch, magic, the CRC itself
CRC_FROM = 21
RECORDS = 60
LEFT_OUT = "left out"  # records are missing, and no other is changed or read twice
STALL_S = 3.0  # a busy machine may hold a reader up for a second
FLIPS = int(os.environ.get("HOURMARK_FLIPS", "12"))  # of each codec
Reader = CommittedReader | PackedReader
Read = tuple[bytes | None, bytes | None]


@pytest.fixture(scope="module")
def broker(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainBroker]:
    with PlainBroker(tmp_path_factory.mktemp("broker"), stack.programs).running() as made:
        yield made


def committed(cluster: KafkaCluster) -> Reader:
    return CommittedReader(cluster, "central", stall_s=STALL_S)


def packed(cluster: KafkaCluster) -> Reader:
    assert native.MODULE is not None and supports_native_client(native.MODULE)
    return PackedReader(native.MODULE, cluster, "central", stall_s=STALL_S)


def records(count: int = RECORDS, first: int = 0) -> list[Record]:
    return [(b"key %03d" % n, (b"value %03d " % n) * 8) for n in range(first, first + count)]


def read(make: Callable[[], Reader], topic: str, end: int) -> list[Read]:
    """All of the span, or Unavailable."""
    reader = make()
    found: list[Read] = []
    try:
        for runs in reader.read({Partition(topic, 0): (0, end)}):
            for run in runs:
                if isinstance(run.records, list):
                    found += [(m.key(), m.value()) for m in run.records]
                else:
                    keys, values = (
                        memoryview(e).cast("i")
                        for e in (run.records.key_ends, run.records.value_ends)
                    )
                    found += [
                        (
                            run.records.keys[keys[n] : keys[n + 1]],
                            run.records.values[values[n] : values[n + 1]],
                        )
                        for n in range(len(run.records))
                    ]
    finally:
        reader.close()
    return found


def outcomes(
    broker: PlainBroker,
    make: Callable[[], Reader],
    topic: str,
    wrote: list[Record],
    places: list[tuple[int, int]],
) -> Counter[str]:
    log, found = broker.log(topic), Counter[str]()
    for at, bit in places:
        with log.with_flipped_bit(at, bit):
            try:
                got = read(make, topic, len(wrote))
            except Unavailable as error:
                assert topic in str(error), (
                    f"byte {at} bit {bit}: the error does not name the topic: {error}"
                )
                found["refused"] += 1
            else:
                is_of_what_was_written = not Counter(got) - Counter(wrote)
                wrong = (
                    LEFT_OUT
                    if is_of_what_was_written
                    else f"wrong, byte {at} bit {bit}: {len(got)} records"
                )
                found["harmless" if got == wrote else wrong] += 1
    return found


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_flip_anywhere_in_a_log_is_refused_or_harmless_or_leaves_records_out(
    broker: PlainBroker, codec: str
) -> None:
    """Records that are left out are missed by their promises; one that is read is one that was
    written.
    """
    topic, wrote, draw = (
        f"flips-{uuid.uuid4().hex[:8]}",
        records(),
        random.Random(f"anywhere {codec}"),
    )
    broker.make_topic(topic)
    for first in range(0, RECORDS, 20):
        broker.append(topic, wrote[first : first + 20], compression_codec=codec)
    size = len(broker.log(topic).read())
    places = [(draw.randrange(size), draw.randrange(8)) for _ in range(FLIPS)]
    found = outcomes(broker, lambda: packed(broker.settings), topic, wrote, places)
    print(codec, dict(found))
    assert found.keys() <= {"refused", "harmless", LEFT_OUT}
    assert found["refused"] > FLIPS / 2


@pytest.mark.parametrize("make", [committed, packed])
@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_each_flip_that_the_crc_covers_is_refused(
    broker: PlainBroker, make: Callable[[KafkaCluster], Reader], codec: str
) -> None:
    topic, wrote, draw = f"flips-{uuid.uuid4().hex[:8]}", records(), random.Random(codec)
    broker.make_topic(topic)
    broker.append(topic, wrote, compression_codec=codec)
    size = len(broker.log(topic).read())
    places = [(draw.randrange(CRC_FROM - 4, size), draw.randrange(8)) for _ in range(12)]
    found = outcomes(broker, lambda: make(broker.settings), topic, wrote, places)
    assert found == {"refused": len(places)}


def test_settings_cannot_turn_the_check_off(broker: PlainBroker) -> None:
    topic, wrote = f"flips-{uuid.uuid4().hex[:8]}", records()
    broker.make_topic(topic)
    broker.append(topic, wrote)
    careless = broker.settings.model_copy(update={"properties": {"check.crcs": "false"}})
    at = broker.log(topic).read().index(b"value 030")
    assert outcomes(broker, lambda: committed(careless), topic, wrote, [(at, 0)]) == {"refused": 1}


@pytest.mark.parametrize("make", [committed, packed])
def test_flips_of_a_header_outside_of_the_crc_lose_no_record_silently(
    broker: PlainBroker, make: Callable[[KafkaCluster], Reader]
) -> None:
    """Of the middle one of three batches: all bits of its length, of its magic byte and of its
    leader epoch, and low and high bits of its base offset. Left out is the sign of the base offset:
    a negative one has the client skip the batch.
    """
    topic, wrote = f"flips-{uuid.uuid4().hex[:8]}", records()
    broker.make_topic(topic)
    for first in range(0, RECORDS, 20):
        broker.append(topic, wrote[first : first + 20])
    batch = len(broker.log(topic).read()) // 3
    bits = [*range(4, 64, 12), *range(59, 64), *range(64, 96, 4), 96, 121, 126, *range(128, 136)]
    places = [(batch + n // 8, 7 - n % 8) for n in bits]
    found = outcomes(broker, lambda: make(broker.settings), topic, wrote, places)
    assert found.keys() == {"refused", "harmless"}
    assert (
        found["harmless"] <= 6
    )  # leader epochs, and a base offset so little higher that every record is read


def test_a_base_offset_that_jumps_beyond_the_end_of_the_log_is_refused(broker: PlainBroker) -> None:
    topic, wrote = f"flips-{uuid.uuid4().hex[:8]}", records()
    broker.make_topic(topic)
    for first in range(0, RECORDS, 20):
        broker.append(topic, wrote[first : first + 20])
    last = len(broker.log(topic).read()) // 3 * 2
    places = [(last + n // 8, 7 - n % 8) for n in (3, 20, 40, 57, 60, 63)]
    assert outcomes(broker, lambda: packed(broker.settings), topic, wrote, places) == {
        "refused": len(places)
    }
