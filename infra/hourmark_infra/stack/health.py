"""Health checks of the local stack's servers; each returns within a few seconds."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import ssl
from typing import Any, NamedTuple

import httpx
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from hourmark_infra.stack.registry import CONFLUENT_PATH

ANSWER_SECONDS = 5.0
HEARTBEAT_SECONDS_MAX = 5  # one is sent each second (hourmark_infra.stack.hadoop)

# One client, as making one reads the machine's certificates; each answer on a connection of its
# own, as servers come and go. They are named by their addresses: a proxy of the environment has no
# business here.
_HTTP = httpx.Client(
    timeout=ANSWER_SECONDS, trust_env=False, limits=httpx.Limits(max_keepalive_connections=0)
)

_SILENT = logging.getLogger(f"{__name__}.silent")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class Health(NamedTuple):
    """The result of a health check.

    Attributes:
        ok: Whether the server is healthy.
        detail: What the server reported, or why it is not healthy.
    """

    ok: bool
    detail: str


def of_broker(address: str, node: int, brokers: int = 1) -> Health:
    """Check a Kafka broker.

    Args:
        address: Address of the broker, `host:port`.
        node: Node ID of the broker.
        brokers: Minimum number of brokers that its metadata must list.

    Returns:
        Healthy if the broker's metadata lists `node`, a controller and enough brokers.
    """
    if not listens(address):
        return Health(False, "does not listen")
    try:
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0}, logger=_SILENT)
        metadata = admin.list_topics(timeout=ANSWER_SECONDS)
    except KafkaException as error:
        return Health(False, str(error.args[0].str()))
    if node not in metadata.brokers:
        return Health(False, "has not joined its cluster")
    if metadata.controller_id < 0:
        return Health(False, "its cluster has no controller")
    count = len(metadata.brokers)
    return Health(
        count >= brokers,
        f"sees {count} broker{'' if count == 1 else 's'}, {len(metadata.topics)} topics",
    )


def of_namenode(address: str) -> Health:
    """Check the NameNode whose HTTP server is at `address` (`host:port`).

    It is healthy if WebHDFS responds, safe mode is off and at least one DataNode is live.
    """
    try:
        _get(address, "/webhdfs/v1/?op=GETFILESTATUS")
        bean = _bean(address, "Hadoop:service=NameNode,name=NameNodeInfo")
    except _NoAnswer as error:
        return Health(False, str(error))
    if bean.get("Safemode"):
        return Health(False, "in safe mode")
    live = len(json.loads(bean.get("LiveNodes", "{}")))
    return Health(live > 0, f"{live} live datanode{'' if live == 1 else 's'}")


def of_datanode(address: str, namenode: str) -> Health:
    """Check a DataNode by asking its NameNode for the last heartbeat.

    A direct request to a DataNode that is still starting fills its log with stack traces.

    Args:
        address: HTTP address of the DataNode, `host:port`.
        namenode: HTTP address of its NameNode, `host:port`.

    Returns:
        Healthy if the NameNode received a recent heartbeat from the current process.
    """
    try:
        uptime_seconds = _bean(address, "java.lang:type=Runtime")["Uptime"] / 1000
        bean = _bean(namenode, "Hadoop:service=NameNode,name=NameNodeInfo")
    except _NoAnswer as error:
        return Health(False, str(error))
    nodes = json.loads(bean.get("LiveNodes", "{}")).values()
    known_as = _with_number(address)
    silent_seconds = min(
        (int(node["lastContact"]) for node in nodes if node.get("infoAddr") == known_as),
        default=None,
    )
    # Whole seconds, rounded down: only with one to spare it was surely this process, and not the
    # one before.
    if silent_seconds is None or silent_seconds + 1 >= uptime_seconds:
        return Health(False, "its NameNode does not know it yet")
    return Health(
        silent_seconds <= HEARTBEAT_SECONDS_MAX,
        f"its NameNode heard from it {silent_seconds} s ago",
    )


def of_registry(address: str) -> Health:
    """Check that the schema registry at `address` (`host:port`) lists its subjects."""
    try:
        subjects = _get(address, f"{CONFLUENT_PATH}/subjects")
    except _NoAnswer as error:
        return Health(False, str(error))
    return Health(True, f"{len(subjects)} subjects")


def of_mirror(address: str) -> Health:
    """Check that the REST server of MirrorMaker 2 at `address` (`host:port`) accepts connections.

    MirrorMaker 2 opens this port after it has connected to both clusters.
    """
    return (
        Health(True, "REST listens") if listens(address) else Health(False, "REST does not listen")
    )


def of_watch(address: str) -> Health:
    """Check that the mirror's monitor at `address` (`host:port`) serves its metrics.

    The metric values do not affect the result.
    """
    try:
        answer = _HTTP.get(f"http://{address}/metrics")
    except httpx.HTTPError as error:
        return Health(False, f"no metrics: {error}")
    return Health(answer.is_success, f"metrics answer {answer.status_code}")


def of_url(url: str, verify: ssl.SSLContext | bool = True) -> Health:
    """Check that a GET request to `url` succeeds within 5 seconds.

    Args:
        url: URL to request; redirects are not followed.
        verify: TLS context with the trusted and client certificates; True trusts those of the
            machine.
    """
    try:
        answer = httpx.get(url, verify=verify, timeout=ANSWER_SECONDS, trust_env=False)
    except httpx.HTTPError as error:
        return Health(False, f"no answer from {url}: {error}")
    return Health(answer.is_success, f"{url} answers {answer.status_code}")


def of_port(address: str) -> Health:
    """Check that `address` (`host:port`) accepts a TCP connection within one second."""
    return (
        Health(True, f"{address} listens")
        if listens(address)
        else Health(False, f"{address} does not listen")
    )


class _NoAnswer(Exception):
    """An error for a server that did not respond or whose response is not usable."""


def _bean(address: str, name: str) -> dict[str, Any]:
    for bean in _get(address, f"/jmx?qry={name}").get("beans", []):
        return dict(bean)
    raise _NoAnswer("still starting")


def _get(address: str, path: str) -> Any:
    try:
        return _HTTP.get(f"http://{address}{path}").raise_for_status().json()
    except httpx.ConnectError as error:
        raise _NoAnswer("does not listen") from error
    except httpx.HTTPStatusError as error:
        raise _NoAnswer(f"answers {error.response.status_code} to {path}") from error
    except httpx.HTTPError as error:
        raise _NoAnswer(f"no answer: {error}") from error
    except ValueError as error:
        raise _NoAnswer(f"no JSON at {path}") from error


def _with_number(address: str) -> str:
    """With the host as its IPv4 address, as a NameNode names its DataNodes; as it is where the name
    is nobody's.
    """
    host, port = address.rsplit(":", 1)
    with contextlib.suppress(OSError):
        return f"{socket.gethostbyname(host)}:{port}"
    return address


def listens(address: str) -> bool:
    """Return whether `address` (`host:port`) accepts a TCP connection within one second."""
    host, port = address.rsplit(":", 1)
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1.0):
        return True
    return False
