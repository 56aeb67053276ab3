"""Differences between edge topics, remote topics and running workers, as pure functions.

MirrorMaker 2 itself only adds partitions to remote topics. Hourmark manages retention, message
sizes and policies, because `sync.topic.configs.enabled` would not copy all of them and would not
report what it changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from hourmark.config.redaction import redact_setting
from hourmark.kafka.clients import TopicInfo
from hourmark.kafka.topic_setup import TopicSpec

_ANY_BROKER: Final = "bootstrap.servers"  # depends on the brokers known at startup
_MADE_BY_MIRROR_MAKER: Final = (
    "name",
    "connector.class",
    "source.cluster.alias",
    "target.cluster.alias",
)


class DifferenceKind(StrEnum):
    """Kind of a difference between a running mirror and its configuration.

    `hourmark mirror apply` resolves `CREATE`, `ADD_PARTITIONS` and `SET`.

    Attributes:
        CREATE: A remote topic must be created.
        ADD_PARTITIONS: A remote topic has too few partitions.
        SET: A setting of a remote topic must be changed.
        TOO_MANY_PARTITIONS: A remote topic has too many partitions, which Kafka cannot remove.
        RESTART: An operator must restart the workers of the mirror.
        START: An operator must start a worker, because none is running.
    """

    CREATE = "create"
    ADD_PARTITIONS = "add-partitions"
    SET = "set"
    TOO_MANY_PARTITIONS = "too-many-partitions"
    RESTART = "restart"
    START = "start"


APPLICABLE: Final = (DifferenceKind.CREATE, DifferenceKind.ADD_PARTITIONS, DifferenceKind.SET)


class MirrorDifference(NamedTuple):
    """Difference between the actual and the expected value of a remote topic or worker setting.

    Attributes:
        kind: Kind of difference, which determines how to resolve it.
        subject: Name of a remote topic, or `worker`.
        setting: Name of the setting, or `partitions`.
        now: Current value; None if it is not set or the topic does not exist.
        wanted: Expected value; None if it should not be set.
    """

    kind: DifferenceKind
    subject: str
    setting: str
    now: str | None
    wanted: str | None

    @property
    def applicable(self) -> bool:
        """Return whether `hourmark mirror apply` can resolve this difference.

        False if an operator must start or restart a worker, or if a topic has too many partitions.
        """
        return self.kind in APPLICABLE

    def as_object(self) -> dict[str, object]:
        """Return the difference as a JSON-serializable dict, with secrets redacted.

        Returns:
            A dict with the attribute names and `applicable` as keys.
        """
        now, wanted = (
            redact_setting(self.now, self.setting),
            redact_setting(self.wanted, self.setting),
        )
        return {**self._asdict(), "now": now, "wanted": wanted, "applicable": self.applicable}

    def __str__(self) -> str:
        if self.kind is DifferenceKind.CREATE:
            return f"{self.subject}: to be created with {self.wanted} partitions"
        now, wanted = (
            "absent" if v is None else redact_setting(v, self.setting)
            for v in (self.now, self.wanted)
        )
        return f"{self.subject}: {self.setting}: {now} → {wanted}"


def topic_differences(
    wanted: Sequence[TopicSpec],
    existing: Mapping[str, TopicInfo],
    settings: Mapping[str, Mapping[str, str]],
) -> Iterator[MirrorDifference]:
    """Yield the differences between the expected and the existing remote topics.

    Topics that exist but are not expected are ignored.

    Args:
        wanted: Expected remote topics.
        existing: Existing remote topics by name.
        settings: Maps each existing topic to its current settings. Absent settings are not
            compared.

    Yields:
        For each missing topic, one difference with the expected number of partitions. For each
        existing topic, one difference for each setting that differs, and one if the number of
        partitions differs.
    """
    for topic in wanted:
        if topic.name not in existing:
            yield MirrorDifference(
                DifferenceKind.CREATE, topic.name, "partitions", None, str(topic.partitions)
            )
            continue
        count = len(existing[topic.name].partitions)
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
    """Yield the connector settings that differ between the configuration and the running workers.

    Bootstrap servers and settings that MirrorMaker 2 adds itself are ignored.

    Args:
        wanted: Connector settings according to the configuration.
        running: Settings of the running connector; empty if the connector has never run, in which
            case nothing is yielded.

    Yields:
        One difference of kind `RESTART` for each differing setting, sorted by name.
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
    """Yield a difference of kind `START` if no worker of the mirror is running.

    Args:
        hosts: Hosts of the running workers. If there are any, nothing is yielded.
    """
    if not hosts:
        yield MirrorDifference(DifferenceKind.START, "worker", "hosts", None, "at least one")


def version_differences(installed: str, running: Iterable[str]) -> Iterator[MirrorDifference]:
    """Yield a difference for each running MirrorMaker 2 version other than the installed one.

    Args:
        installed: Version of MirrorMaker 2 on this host; empty if unknown, in which case nothing is
            yielded.
        running: Versions of the running workers. Empty versions are ignored.

    Yields:
        One difference of kind `RESTART` for each distinct version, sorted by version.
    """
    for version in sorted({*running} - {"", installed}) if installed else ():
        yield MirrorDifference(DifferenceKind.RESTART, "worker", "version", version, installed)


def connector_settings(properties: Mapping[str, str], source: str, target: str) -> dict[str, str]:
    """Return the connector settings that MirrorMaker 2 derives from its own properties.

    The derivation follows `MirrorMakerConfig.connectorBaseConfig` in the source code of Kafka.

    Args:
        properties: MirrorMaker 2 properties, with names as keys.
        source: Alias of the source cluster.
        target: Alias of the target cluster.

    Returns:
        Connector settings, with names as keys. The prefix `source->target.` is removed. The alias
        of a cluster is replaced with `source` or `target` for client settings (such as
        `consumer.*`), and with `source.cluster` or `target.cluster` for all others.
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
