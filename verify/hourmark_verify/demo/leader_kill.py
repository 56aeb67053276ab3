"""The demo's trouble: SIGKILL for the broker that leads a partition, and its return."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from hourmark.config.loading import Config
from hourmark.errors import Unavailable
from hourmark.kafka.clients import Cluster
from hourmark.kafka.topic_names import events_topic
from hourmark_infra.stack import LocalStack
from hourmark_verify.demo.events import TRACK_PLAYED
from hourmark_verify.demo.traffic import Traffic

if TYPE_CHECKING:
    from hourmark_verify.demo.demo import Demo

KILL_AT: Final = 0.35  # of the traffic's span
AWAY_SECONDS: Final = 20.0


Fault: TypeAlias = Callable[
    ["Demo", Traffic, LocalStack, Config], None
]  # happens while files grow; returns when it is over


def leader_dies(demo: Demo, traffic: Traffic, stack: LocalStack, config: Config) -> None:
    """In the middle of the traffic, for a while."""
    demo.wait(lambda: traffic.moment >= KILL_AT, "the middle of the traffic", traffic.span_s)
    broker = leader_of(config, events_topic(TRACK_PLAYED))
    stack.kill(broker)
    demo.tell(
        f"{traffic.written:,} lines written; killed {broker}, which led "
        f"events.{TRACK_PLAYED}, with SIGKILL"
    )
    demo.pause(AWAY_SECONDS)
    stack.start(broker)
    stack.wait_ready(broker)
    demo.tell(f"{broker} is back; {traffic.written:,} lines written")


def leader_of(config: Config, topic: str, cluster: str = "edge") -> str:
    """The stack's name of the broker of the cluster (edge, or central) that leads the topic's first
    partition.
    """
    asked = config.kafka.edge if cluster == "edge" else config.kafka.central_cluster
    metadata = Cluster(asked, cluster).admin.list_topics(topic, timeout=15.0)
    leader = metadata.topics[topic].partitions[0].leader
    if leader < 0:
        raise Unavailable(f"nobody leads {topic}-0, so there is no leader to kill")
    return f"{cluster}-{leader}"
