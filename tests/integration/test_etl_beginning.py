"""A driver that begins while a server is away waits for it, and says so; what an operator must mend
ends it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.faults.chaos.link import Link, Mode, Network
from tests.support import postgres
from tests.support.clock import FakeClock
from tests.support.etl import EtlRun
from tests.support.ports import free_port

from hourmark.config.loading import Config
from hourmark.errors import Unavailable
from hourmark.records.hours import Hour
from hourmark_etl.errors import NoLedger
from hourmark_etl.startup import PAUSE_S, WAIT_S, open_startup_resources, wait_until_available
from hourmark_infra.stack import LocalStack

pytestmark = [pytest.mark.stack, pytest.mark.timeout(180)]
CLICK = f"click-{uuid.uuid4().hex[:8]}"
Away = tuple[
    Config, Callable[[], object]
]  # a configuration one server of which does not answer until this is called


@pytest.fixture(scope="module")
def ledger() -> Iterator[postgres.Postgres]:
    with postgres.running_or_skipped() as server:
        yield server


@pytest.fixture
def known(stack: LocalStack, tmp_path: Path, ledger: postgres.Postgres, first_hour: Hour) -> Config:
    """Types are applied, and all servers answer."""
    return EtlRun(
        stack.layout.config_file,
        tmp_path / "etl",
        [CLICK],
        first_hour,
        etl={"ledger": ledger.new_database()},
    ).config


@contextmanager
def cut(address: str) -> Iterator[Link]:
    """A link to there that is cut."""
    host, _, port = address.removeprefix("http://").rpartition(":")
    network = Network()
    link = Link(free_port(), (host, int(port)), network)
    link.set(Mode.CUT)
    try:
        yield link
    finally:
        network.stop()


@contextmanager
def without_ledger(config: Config, server: postgres.Postgres) -> Iterator[Away]:
    server.stop()
    yield config, server.start


@contextmanager
def without_storage(config: Config, _: postgres.Postgres) -> Iterator[Away]:
    assert config.storage.webhdfs is not None
    with cut(config.storage.webhdfs) as link:
        storage = config.storage.model_copy(update={"webhdfs": f"http://127.0.0.1:{link.port}"})
        yield config.model_copy(update={"storage": storage}), lambda: link.set(Mode.OPEN)


@contextmanager
def without_kafka(config: Config, _: postgres.Postgres) -> Iterator[Away]:
    with cut(config.kafka.edge.bootstrap.partition(",")[0]) as link:
        edge = config.kafka.edge.model_copy(update={"bootstrap": f"127.0.0.1:{link.port}"})
        kafka = config.kafka.model_copy(update={"edge": edge})
        yield config.model_copy(update={"kafka": kafka}), lambda: link.set(Mode.OPEN)


class Passing(FakeClock):
    """Each time that somebody sleeps is counted, and something is done at one of them."""

    def __init__(self, heal: Callable[[], object], after: int) -> None:
        super().__init__()
        self.slept, self._heal, self._after = 0, heal, after

    def sleep(self, seconds: float) -> None:
        self.slept += 1
        super().sleep(seconds)
        if self.slept == self._after:
            self._heal()


@pytest.mark.parametrize(
    ("without", "named", "after"),
    [
        (without_ledger, "the ledger (etl.ledger", 3),
        (without_storage, "storage.webhdfs", 3),
        (without_kafka, "central", 1),
    ],
    ids=["ledger", "storage", "kafka"],
)
def test_a_start_waits_for_a_server_that_is_away(
    without: Callable[..., AbstractContextManager[Away]],
    named: str,
    after: int,
    known: Config,
    ledger: postgres.Postgres,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with without(known, ledger) as (config, heal), ExitStack() as opened:
        clock = Passing(heal, after)
        found = wait_until_available(lambda: open_startup_resources(config, opened), clock)
        assert CLICK in found.types and found.cluster_id
        assert found.database.identity(), "it is open"
    assert clock.slept == after
    said = [
        record.getMessage()
        for record in caplog.records
        if "is waiting to start" in record.getMessage()
    ]
    assert len(said) == after and all(named in line for line in said)


def test_after_a_minute_it_is_left_to_a_supervisor(
    known: Config, ledger: postgres.Postgres
) -> None:
    """Who begins it anew reads settings and passwords anew."""
    with without_ledger(known, ledger) as (config, heal), ExitStack() as opened:
        clock = Passing(heal, after=99)
        with pytest.raises(Unavailable, match=r"etl\.ledger"):
            wait_until_available(lambda: open_startup_resources(config, opened), clock)
        assert clock.slept * PAUSE_S == WAIT_S
        heal()


def test_nobody_waits_for_a_ledger_that_is_none(known: Config, tmp_path: Path) -> None:
    etl = known.etl.model_copy(update={"ledger": f"sqlite:///{tmp_path}/none.sqlite"})
    clock = Passing(lambda: None, after=1)
    with ExitStack() as opened, pytest.raises(NoLedger, match="no ledger exists at"):
        wait_until_available(
            lambda: open_startup_resources(known.model_copy(update={"etl": etl}), opened), clock
        )
    assert clock.slept == 0
