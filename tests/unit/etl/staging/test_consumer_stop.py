"""The end of staging: a batch that Spark begins while the query is stopped holds nothing up.

Spark's `stop` waits without a limit for the thread of the query, which may be about to call the
function of the batch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.clock import FakeClock

from hourmark.config.groups import EtlSettings
from hourmark.config.loading import Config
from hourmark_etl.ledger.database import Database
from hourmark_etl.staging.consumer import Consumer

WITHIN_S = 3.0


class Query:
    """As Spark's, with a batch that begins when it is stopped."""

    isActive = True  # Spark's name

    def __init__(self, stage: Callable[[Any, int], None]) -> None:
        self._thread = threading.Thread(target=stage, args=(Frame(), 0), daemon=True)
        self.has_ended = False

    def stop(self) -> None:
        self._thread.start()
        self._thread.join(WITHIN_S)
        self.has_ended = not self._thread.is_alive()


class Frame:
    """Nothing may be read of it once the query is to stop."""

    def collect(self) -> list[Any]:
        raise AssertionError("the batch is staged although the query is stopped")


class Spark:
    """What a consumer uses of a session; every builder returns itself."""

    def __init__(self) -> None:
        self.query: Query | None = None

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self

    master = "local[2]"

    def foreachBatch(self, stage: Callable[[Any, int], None]) -> Spark:
        self.query = Query(stage)
        return self

    def start(self) -> Query:
        assert self.query is not None
        return self.query


def test_a_batch_that_begins_while_the_query_is_stopped_ends_at_once(tmp_path: Path) -> None:
    spark: Any = Spark()
    config = Config(etl=EtlSettings(scratch_dir=tmp_path / "scratch"))
    with Database(f"sqlite:///{tmp_path}/ledger.sqlite") as database:
        consumer = Consumer(
            spark,
            config,
            database,
            "cluster",
            FakeClock(),
            lambda *_: None,
            "default",
            make_reader=lambda *_: None,  # type: ignore[arg-type]
        )
        consumer.start()
        consumer.stop()
    assert spark.query.has_ended, "Spark would wait for the batch for ever"
