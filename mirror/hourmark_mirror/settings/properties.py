"""MirrorMaker 2's properties, derived from the configuration without access to servers or clocks.

One direction, edge to central, in dedicated mode with exactly-once source support. The difficulty
of MirrorMaker 2 is which prefix applies to which client (`MirrorMakerConfig`,
`MirrorConnectorConfig.sourceConsumerConfig`, `Worker` in Kafka's source):

| prefix           | applies to                                                                   |
|------------------|------------------------------------------------------------------------------|
| (none)           | the process: clusters, listeners, connector settings known to MirrorMaker    |
| `central.`       | the Connect worker; with `producer.` the producer of copied records          |
| `edge.consumer.` | the consumer that reads the source                                           |
| `edge->central.` | the connector: topics, refresh interval; with `admin.` its admin clients     |

MirrorMaker 2 ignores settings under other prefixes without a warning, so the integration tests
verify each setting by its effect.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from hourmark.config.groups import KafkaCluster
from hourmark.config.loading import Config
from hourmark.errors import ConfigError
from hourmark.kafka.clients import bootstrap_addresses
from hourmark.kafka.topic_names import AUDIT, HOSTS
from hourmark_mirror.settings.security import PROVIDERS, client_security, secret_settings

TARGET_ALIAS: Final = "central"
TOPICS: Final = (r"events\..*", AUDIT.replace(".", r"\."), HOSTS.replace(".", r"\."))

# Settings that are the same in every installation, one per line, each with its reason.
_SETTINGS: Final = """\
listeners = http://{rest_host}:{rest_port}
dedicated.mode.enable.internal.rest = true
plugin.discovery = service_load  # scanning every jar is most of a start (twice: here and in the worker)
emit.heartbeats.enabled = false  # at this level too, or a worker for the opposite direction is started
{target}.exactly.once.source.support = enabled
{target}.plugin.discovery = service_load
{target}.scheduled.rebalance.max.delay.ms = 0  # by default tasks of a killed worker rest for five minutes
{target}.session.timeout.ms = 10000  # how long a killed worker's membership blocks the next; below it a busy machine loses it
{target}.heartbeat.interval.ms = 3333  # a third of that
{target}.offset.storage.partitions = 1  # small and compacted; one partition is read to its end at once
{target}.status.storage.partitions = 1
{target}.offset.storage.segment.bytes = 8388608  # only closed segments are compacted, so starts stay quick
{target}.offset.storage.replication.factor = {replication}
{target}.status.storage.replication.factor = {replication}
{target}.config.storage.replication.factor = {replication}
{source}.consumer.isolation.level = read_committed  # exactly-once support is refused without it
{source}.consumer.auto.offset.reset = earliest  # a new partition from its start; the gap this can hide is `mirror verify`'s
{source}.consumer.check.crcs = true  # Java's default, which nothing may turn off: a changed batch must not be copied
{source}.consumer.max.partition.fetch.bytes = {message_bytes}
{source}.consumer.fetch.max.bytes = {message_bytes_twice}
{source}.consumer.fetch.min.bytes = 65536  # a transaction gathers this much, or as long as the next says, whichever is first
{source}.consumer.fetch.max.wait.ms = 200  # one for each record is 50 times the work and the markers
{source}.consumer.max.poll.records = 5000  # of one transaction: 500, the default, spends most time on commits while catching up
{target}.producer.acks = all
{target}.producer.compression.type = zstd
{target}.producer.batch.size = 262144
{target}.producer.max.request.size = {message_bytes_twice}  # measured before compression, and by the broker after it
{target}.producer.buffer.memory = {message_bytes_four_times}
{target}.producer.transaction.timeout.ms = 60000  # readers wait this long for a transaction whose worker never comes back
{flow}.enabled = true
{flow}.admin.metadata.recovery.strategy = none
{flow}.topics = {topics}
{flow}.tasks.max = {tasks_max}
{flow}.transaction.boundary = poll  # committed as soon as copied; an interval would add itself to the latency
{flow}.refresh.topics.interval.seconds = 5  # a new type is copied this soon after its topic was made
{flow}.replication.factor = {replication}
{flow}.sync.topic.configs.enabled = false  # Hourmark makes the remote topics itself
{flow}.sync.topic.acls.enabled = false
{flow}.emit.heartbeats.enabled = false
{flow}.heartbeats.topic.replication.factor = {replication}  # made all the same
{flow}.emit.checkpoints.enabled = false  # no consumer group moves between the clusters
{flow}.sync.group.offsets.enabled = false
{flow}.refresh.groups.enabled = false
{flow}.emit.offset-syncs.enabled = false  # for consumer groups; with any other offset-syncs setting it is refused
"""
# With the default, `rebootstrap`, an admin client whose brokers are all down uses a full core and
# logs 3,000 lines a second.
_RECOVERY: Final = "metadata.recovery.strategy"
_EXCLUDED_ANYWAY: Final = (
    r".*[\-\.]internal,.*\.replica,__.*"  # MirrorMaker 2's default, which ours takes the place of
)
_SECRETS: Final = "mm2-secrets.properties"


def target_cluster(config: Config) -> KafkaCluster:
    """Return the settings of the central cluster, to which the mirror copies.

    Args:
        config: Configuration with both clusters.

    Returns:
        The settings in `kafka.central`.

    Raises:
        ConfigError: No separate central cluster is configured (`kafka.central`), or
            `kafka.edge_alias` is the alias that is reserved for the target.
    """
    if config.kafka.central is None:
        raise ConfigError(
            "kafka.central is not set, so one cluster is both edge and central, and no mirror "
            "is needed. If there are two clusters, set kafka.central.bootstrap"
        )
    if config.kafka.edge_alias == TARGET_ALIAS:
        raise ConfigError(
            f"kafka.edge_alias = {TARGET_ALIAS!r}: reserved for the target; allowed: any other "
            "name, such as 'edge'"
        )
    return config.kafka.central


def mirror_maker_properties(config: Config, excluded: Collection[str] = ()) -> dict[str, str]:
    """Return all MirrorMaker 2 properties, in the order in which they are written to the file.

    Secrets are replaced with references to the file at `secrets_path`.

    Args:
        config: Configuration with both clusters and the group `mirror`.
        excluded: Edge topics that are not copied.

    Returns:
        A dict of property names, such as `clusters` or `edge->central.topics`, and values.

    Raises:
        ConfigError: MirrorMaker 2 cannot use the clusters or their security settings.
    """
    source, target, central = config.kafka.edge_alias, TARGET_ALIAS, target_cluster(config)
    message_bytes = config.kafka.max_message_bytes
    known = {
        "source": source,
        "target": target,
        "flow": f"{source}->{target}",
        "topics": ",".join(TOPICS),
        "replication": central.replication_factor,
        "rest_host": config.mirror.rest_host,
        "rest_port": config.mirror.rest_port,
        "tasks_max": config.mirror.tasks_max,
        "message_bytes": message_bytes,
        "message_bytes_twice": 2 * message_bytes,
        "message_bytes_four_times": 4 * message_bytes,
    }
    left_out = ",".join([_EXCLUDED_ANYWAY, *map(re.escape, sorted(excluded))])
    settings = (line.partition("  #")[0].split(" = ") for line in _SETTINGS.splitlines())
    clients = _client(source, config.kafka.edge) | _client(target, central)
    return {
        "clusters": f"{source},{target}",
        **clients,
        **(PROVIDERS if any("${" in value for value in clients.values()) else {}),
        **{name.format_map(known): value.format_map(known) for name, value in settings},
        **({f"{known['flow']}.topics.exclude": left_out} if excluded else {}),
    }


def secret_properties(config: Config) -> dict[str, str]:
    """Return the passwords and logins of both clusters as MirrorMaker 2 properties.

    The caller writes them to the file at `secrets_path`. The other properties only contain
    references to this file.

    Args:
        config: Configuration with both clusters.

    Returns:
        A dict of property names and secret values; empty if neither cluster requires a login or a
        password.

    Raises:
        ConfigError: No separate central cluster is configured, or a SASL mechanism is not
            supported.
    """
    return secret_settings(config.kafka.edge_alias, config.kafka.edge) | secret_settings(
        TARGET_ALIAS, target_cluster(config)
    )


def secrets_path(config: Config) -> Path:
    """Return the path of the file that contains the secret properties of MirrorMaker 2.

    Args:
        config: Configuration with `mirror.work_dir`.

    Returns:
        An absolute path in the work folder. The file may not exist yet.
    """
    return config.mirror.work_dir.absolute() / _SECRETS


def render_java_properties(values: Mapping[str, str]) -> str:
    """Render properties as text in the format of `java.util.Properties.load`.

    All characters except printable ASCII are escaped, so the text can be encoded as ISO 8859-1.

    Args:
        values: Property names and values.

    Returns:
        One line `name=value` for each property, in the same order.
    """
    return "".join(f"{_escape(name)}={_escape(value)}\n" for name, value in values.items())


def _escape(text: str) -> str:
    special = {
        "\\": r"\\",
        ":": r"\:",
        "=": r"\=",
        "#": r"\#",
        "!": r"\!",
        " ": r"\ ",
        "\n": r"\n",
        "\t": r"\t",
        "\r": r"\r",
    }
    return "".join(special.get(c) or (c if " " < c <= "~" else _unicode(c)) for c in text)


def _unicode(char: str) -> str:
    utf16 = char.encode("utf-16-be")
    return "".join(f"\\u{utf16[i]:02x}{utf16[i + 1]:02x}" for i in range(0, len(utf16), 2))


def _client(alias: str, cluster: KafkaCluster) -> dict[str, str]:
    known = {
        f"{alias}.bootstrap.servers": bootstrap_addresses(cluster),
        f"{alias}.{_RECOVERY}": "none",
    }
    return known | client_security(alias, cluster, _SECRETS)
