"""Brokers removed from the cluster and replaced by others, under load, until none is left that the
service was told of.
"""

from __future__ import annotations

import dataclasses
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.support.forged_batches import Forgery, forge
from tests.support.moving_cluster import MovingCluster, moving_cluster
from tests.support.service.live import CLICK, Serving, StockReader, apply_types
from tests.support.service.load import Poster, check_acknowledged, finish, loaded, wait_for_acks
from tests.support.waiting import wait_for

from hourmark.config.loading import Config, load_config
from hourmark.config.toml_text import render_toml
from hourmark.kafka.topic_names import events_topic
from hourmark_infra.stack import LocalStack

pytestmark = [pytest.mark.stack, pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(1200)]

FIRST, LATER = (1, 2, 3), (11, 12, 13)


@dataclasses.dataclass(frozen=True)
class Site:
    """A service of two workers on a cluster of its own; it was told of the first brokers alone."""

    cluster: MovingCluster
    service: Serving
    config: Config

    def log(self) -> str:
        """Of the service."""
        return (self.service.folder / "service.log").read_text()

    def reader(self) -> StockReader:
        """Of the brokers that there are later."""
        edge = self.config.kafka.edge.model_copy(update={"bootstrap": self.cluster.address(*LATER)})
        return StockReader(
            self.config.model_copy(
                update={"kafka": self.config.kafka.model_copy(update={"edge": edge})}
            )
        )


@pytest.fixture
def site(stack: LocalStack, tmp_path: Path) -> Iterator[Site]:
    with moving_cluster(tmp_path / "kafka", stack, FIRST, LATER) as cluster:
        settings = tomllib.loads(stack.layout.config_file.read_text())
        settings["kafka"] = {
            "edge": settings["kafka"]["edge"] | {"bootstrap": cluster.address(*FIRST)}
        }
        settings["parsing"] = {"bucket_seconds": 60}
        settings["service"] |= {"workers": 2, "delivery_timeout_seconds": 6}
        file = tmp_path / "hourmark.toml"
        file.write_text(render_toml(settings))
        config = load_config(file)
        serving = Serving(
            config_file=file,
            folder=tmp_path,
            revision=apply_types(config, tmp_path / "ledger.sqlite"),
        )
        try:
            serving.start()
            yield Site(cluster, serving, config)
        finally:
            serving.end()


def test_brokers_replaced_one_by_one_until_none_of_the_first_is_left(site: Site) -> None:
    with loaded(site.service) as load:
        wait_for_acks(load, 10)
        before = set(site.service.workers())
        for old, new in zip(FIRST, LATER, strict=True):
            site.cluster.replace(old, new)
            wait_for_acks(load, 10, 120)
        goes_on_at_every_worker(load)
        topic, reader = events_topic(CLICK.name), site.reader()

        copied = next(reader.records(topic))
        forge(
            site.cluster.address(*LATER),
            site.cluster.log_of,
            topic,
            Forgery.NEXT_SEQUENCE,
            (copied.key, copied.value),
        )
        wait_for(lambda: "recreated: it had a fatal error" in site.log(), "a producer is made anew")
        goes_on_at_every_worker(load)

        site.cluster.kill(*LATER)
        time.sleep(20)
        site.cluster.start(*LATER)
        goes_on_at_every_worker(load)
        assert set(site.service.workers()) == before, "no worker was started anew"

        killed = min(before)
        psutil.Process(killed).kill()
        wait_for(
            lambda: len(set(site.service.workers()) - {killed}) == 2,
            "the supervisor starts another worker",
            30,
        )
        goes_on_at_every_worker(load)
        check_acknowledged(reader, finish(load))


def goes_on_at_every_worker(load: list[Poster]) -> None:
    """Each request comes to one of two workers by chance: where one of them refuses, so many in
    turn do not pass it.
    """

    def passed() -> bool:
        retries = sum(poster.retries for poster in load)
        wait_for_acks(load, 30, 120)
        return sum(poster.retries for poster in load) == retries

    wait_for(passed, "30 ranges in turn are acknowledged without a retry", 120)
