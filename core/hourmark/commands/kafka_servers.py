"""Status of Kafka brokers and of the schema registry for `hourmark status`.

Each broker is queried separately, because a client that knows several brokers hides a dead one.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterator, Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata

from hourmark.avro.registry import SchemaRegistry
from hourmark.commands.component_status import NOT_RESOLVED, check_listening
from hourmark.commands.server_status import ServerStatus
from hourmark.config.groups import KafkaCluster
from hourmark.config.loading import Config
from hourmark.config.redaction import redact_setting
from hourmark.errors import Unavailable
from hourmark.kafka.clients import client_settings
from hourmark.printing import name_some
from hourmark.process.parallel_calls import call_all

BROKER_SECONDS: Final = 4.0
_SILENT: Final = logging.getLogger(f"{__name__}.silent")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


def broker_metadata(settings: KafkaCluster, seconds: float = BROKER_SECONDS) -> ClusterMetadata:
    """Fetch the metadata of a Kafka cluster from its bootstrap brokers.

    Args:
        settings: Settings of the cluster. To check a single broker, pass settings that contain only
            its address.
        seconds: Time limit.

    Returns:
        The metadata as confluent_kafka's `ClusterMetadata`.

    Raises:
        Unavailable: No broker answers in time. The message includes the cause if the client reports
            one, such as a rejected certificate.
    """
    reported: list[KafkaError] = []
    own = {"log_level": 0, "error_cb": reported.append}
    try:
        admin = AdminClient(client_settings(settings) | own, logger=_SILENT)
    except KafkaException as error:
        raise Unavailable(str(error.args[0].str())) from error
    try:
        return admin.list_topics(timeout=seconds)
    except KafkaException as error:
        admin.poll(0)  # calls `error_cb`
        reasons = [e.str() for e in reported if e.code() != KafkaError._ALL_BROKERS_DOWN]
        raise Unavailable("; ".join([str(error.args[0].str()), *reasons[:1]])) from error


def kafka_servers(config: Config) -> list[ServerStatus]:
    """Check the health of all Kafka brokers of all configured clusters.

    A broker that does not answer is reported as unhealthy and raises no exception.

    Args:
        config: Configuration with the group `kafka`.

    Returns:
        One entry for each bootstrap address and for each other broker that a cluster reports. A
        cluster with leaderless partitions has an additional unhealthy entry, which names some of
        them.
    """
    clusters: dict[str, KafkaCluster] = {}
    for n, site in enumerate(config.kafka.sites):
        clusters["edge" if n == 0 else f"edge {site.edge_alias}"] = site.edge
        if site.central is not None:
            clusters["central"] = site.central
    found = call_all(
        {name: functools.partial(_cluster, name, c) for name, c in clusters.items()},
        2 * BROKER_SECONDS + 1,
    )
    return [server for name in clusters for server in found.get(name, [])]


def ask_brokers(name: str, settings: KafkaCluster) -> dict[str, ClusterMetadata | str]:
    """Request the cluster metadata from each broker separately, to find the ones that are down.

    The bootstrap addresses are queried first, then all other brokers that the metadata lists.

    Args:
        name: Name of the cluster for error messages, such as "edge".
        settings: Settings of the cluster.

    Returns:
        A dict that maps the address of each broker to the metadata it returned, or to an error
        message if it did not answer.
    """
    configured = [address.strip() for address in settings.bootstrap.split(",")]
    answers = _ask_each(name, settings, configured)
    if (metadata := first_metadata(answers)) is not None:
        others = {f"{b.host}:{b.port}" for b in metadata.brokers.values()} - set(configured)
        answers |= _ask_each(name, settings, sorted(others))
    return answers


def first_metadata(answers: Mapping[str, ClusterMetadata | str]) -> ClusterMetadata | None:
    """Return the cluster metadata from the first broker that answered.

    Args:
        answers: The output of `ask_brokers`: metadata or an error message for each broker.

    Returns:
        The metadata. None if no broker has answered.
    """
    return next((a for a in answers.values() if isinstance(a, ClusterMetadata)), None)


def _cluster(name: str, settings: KafkaCluster) -> list[ServerStatus]:
    answers = ask_brokers(name, settings)
    metadata = first_metadata(answers)
    servers = [_broker(name, address, answer) for address, answer in answers.items()]
    return [*servers, *(_without_leader(name, metadata) if metadata is not None else ())]


def _ask_each(
    name: str, settings: KafkaCluster, addresses: list[str]
) -> dict[str, ClusterMetadata | str]:
    def ask(address: str) -> ClusterMetadata | str:
        one = settings.model_copy(update={"bootstrap": address})
        try:
            check_listening(one, name)
            return broker_metadata(one)
        except Unavailable as error:
            return str(error)

    late = f"no answer within {BROKER_SECONDS:g} s"
    found = call_all({a: functools.partial(ask, a) for a in addresses}, BROKER_SECONDS + 1)
    return {address: found.get(address, late) for address in addresses}


def silent_broker_step(address: str, why: str) -> str:
    """Return advice for the operator on what to do about a broker that does not answer.

    Args:
        address: Address of the broker, as `host:port`.
        why: The error message from `ask_brokers`. The advice depends on whether it reports a
            name resolution error, a TLS error or another error.
    """
    host = address.rpartition(":")[0]
    if NOT_RESOLVED in why:
        return (
            f"correct the address in the configuration (kafka), or let this machine resolve {host} "
            "(DNS, /etc/hosts); a broker is named by its advertised.listeners"
        )
    if "SSL" in why:
        return (
            f"compare security.protocol and the certificates of kafka's properties with those of "
            f"{host}"
        )
    return (
        f"on {host}: see that the broker runs and its log; the others "
        "go on without it while enough replicas are in sync"
    )


def _broker(name: str, address: str, answer: ClusterMetadata | str) -> ServerStatus:
    if isinstance(answer, str):
        return ServerStatus(
            name=f"{name} broker",
            address=address,
            healthy=False,
            detail=answer,
            do=silent_broker_step(address, answer),
        )
    return ServerStatus(
        name=f"{name} broker",
        address=address,
        healthy=True,
        detail=f"brokers: {len(answer.brokers)}, topics: {len(answer.topics)}",
    )


def _without_leader(name: str, metadata: ClusterMetadata) -> Iterator[ServerStatus]:
    leaderless = sorted(
        f"{topic.topic}-{partition.id}"
        for topic in metadata.topics.values()
        for partition in topic.partitions.values()
        if partition.leader < 0
    )
    if leaderless:
        yield ServerStatus(
            name=f"{name} cluster",
            address="",
            healthy=False,
            detail=f"{len(leaderless)} topic-partitions have no leader: {name_some(leaderless)}",
            do="bring back the brokers that have their replicas; `hourmark doctor --only kafka` "
            "names all",
        )


def registry_server(config: Config) -> list[ServerStatus]:
    """Check the health of the schema registry by fetching a schema.

    Args:
        config: Configuration with the group `registry`.

    Returns:
        A list with one entry, which is unhealthy if the registry does not answer or rejects the
        request.

    Raises:
        ConfigError: The URL or a certificate in the settings cannot be used.
    """
    url = redact_setting(config.registry.url)
    try:
        with contextlib.closing(SchemaRegistry(config.registry)) as registry:
            registry.schema(1)  # any answer shows that it runs
    except Unavailable as error:
        return [
            ServerStatus(
                name="registry",
                address=url,
                healthy=False,
                detail=str(error),
                do="see that it runs and its log; only `hourmark types` needs it, events go on",
            )
        ]
    return [ServerStatus(name="registry", address=url, healthy=True, detail="answers")]
