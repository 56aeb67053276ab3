"""What is not as it should be between the edge, the remote topics and what runs.

Pure: what was read in, differences out.

MirrorMaker 2 adds partitions to remote topics by itself, and nothing else: retention, message sizes
and policies are Hourmark's (`sync.topic.configs.enabled` would not carry all of them, and would
carry them without a word).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from hourmark.config.redaction import shown
from hourmark.kafka.clients import TopicInfo
from hourmark.kafka.topic_setup import WantedTopic

_ANY_BROKER: Final = "bootstrap.servers"  # whichever brokers are known at a start
_MADE_BY_MIRROR_MAKER: Final = (
    "name",
    "connector.class",
    "source.cluster.alias",
    "target.cluster.alias",
)


class DifferenceKind(StrEnum):
    """What `mirror apply` does about it. It changes no worker, and takes no partition away."""

    CREATE = "create"
    ADD_PARTITIONS = "add-partitions"
    SET = "set"
    TOO_MANY_PARTITIONS = "too-many-partitions"
    RESTART = "restart"
    START = "start"


APPLICABLE: Final = (DifferenceKind.CREATE, DifferenceKind.ADD_PARTITIONS, DifferenceKind.SET)


class MirrorDifference(NamedTuple):
    """`setting` of `subject`, a remote topic or `worker`, is `now` and should be `wanted`; None: it
    is not there.
    """

    kind: DifferenceKind
    subject: str
    setting: str
    now: str | None
    wanted: str | None

    @property
    def applicable(self) -> bool:
        """Whether `mirror apply` mends it."""
        return self.kind in APPLICABLE

    def as_object(self) -> dict[str, object]:
        """For programs."""
        now, wanted = shown(self.now, self.setting), shown(self.wanted, self.setting)
        return {**self._asdict(), "now": now, "wanted": wanted, "applicable": self.applicable}

    def __str__(self) -> str:
        if self.kind is DifferenceKind.CREATE:
            return f"{self.subject}: is to be created, with {self.wanted} partitions"
        now, wanted = (
            "absent" if v is None else shown(v, self.setting) for v in (self.now, self.wanted)
        )
        return f"{self.subject}: {self.setting}: {now} → {wanted}"


def topic_differences(
    wanted: Sequence[WantedTopic],
    there: Mapping[str, TopicInfo],
    settings: Mapping[str, Mapping[str, str]],
) -> Iterator[MirrorDifference]:
    """Between remote topics as they should be and as they are; `settings`: by topic, of those that
    are `there`.
    """
    for topic in wanted:
        if topic.name not in there:
            yield MirrorDifference(
                DifferenceKind.CREATE, topic.name, "partitions", None, str(topic.partitions)
            )
            continue
        count = len(there[topic.name].partitions)
        if count != topic.partitions:
            kind = (
                DifferenceKind.ADD_PARTITIONS
                if count < topic.partitions
                else DifferenceKind.TOO_MANY_PARTITIONS
            )
            yield MirrorDifference(
                kind, topic.name, "partitions", str(count), str(topic.partitions)
            )
        now = settings[topic.name]
        for name, value in topic.settings.items():
            if now.get(name, value) != value:
                yield MirrorDifference(DifferenceKind.SET, topic.name, name, now[name], value)


def connector_differences(
    wanted: Mapping[str, str], running: Mapping[str, str]
) -> Iterator[MirrorDifference]:
    """Between the connector's settings by this configuration and those that the workers run with;
    none where none ever ran.
    """
    for name in sorted(wanted.keys() | running.keys()) if running else ():
        if (
            name.endswith(_ANY_BROKER)
            or name in _MADE_BY_MIRROR_MAKER
            or wanted.get(name) == running.get(name)
        ):
            continue
        yield MirrorDifference(
            DifferenceKind.RESTART, "worker", name, running.get(name), wanted.get(name)
        )


def missing_worker_differences(hosts: Sequence[str]) -> Iterator[MirrorDifference]:
    """From a mirror that runs: one without any worker."""
    if not hosts:
        yield MirrorDifference(DifferenceKind.START, "worker", "hosts", None, "at least one")


def version_differences(installed: str, running: Iterable[str]) -> Iterator[MirrorDifference]:
    """Workers that run another version than the jars here."""
    for version in sorted({*running} - {"", installed}) if installed else ():
        yield MirrorDifference(DifferenceKind.RESTART, "worker", "version", version, installed)


def connector_settings(properties: Mapping[str, str], source: str, target: str) -> dict[str, str]:
    """What MirrorMaker 2 makes of its properties for a connector
    (`MirrorMakerConfig.connectorBaseConfig` in Kafka's source).
    """
    made = {}
    for name, value in properties.items():
        if name.startswith(f"{source}->{target}."):
            made[name.removeprefix(f"{source}->{target}.")] = value
        for alias, role in ((source, "source"), (target, "target")):
            rest = name.removeprefix(f"{alias}.")
            if rest != name:
                made[
                    f"{role}.{rest}" if rest.startswith(_CLIENTS) else f"{role}.cluster.{rest}"
                ] = value
    return made


_CLIENTS: Final = ("consumer.", "producer.", "admin.")
