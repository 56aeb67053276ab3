"""Health checks of the local stack's servers; each returns within a few seconds."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any, Final, NamedTuple

import httpx

from hourmark.commands.kafka_servers import broker_metadata
from hourmark.commands.server_status import LEAVE_SAFE_MODE
from hourmark.config.groups import KafkaCluster
from hourmark.errors import Unavailable
from hourmark_infra.stack.registry import CONFLUENT_PATH

ANSWER_SECONDS = 5.0
HEARTBEAT_SECONDS_MAX = 5  # one is sent each second (hourmark_infra.stack.hadoop)

# One shared client, because creating a client reads the machine's certificates. Each request opens
# a new connection, because servers are restarted. Proxy settings of the environment are ignored:
# servers are addressed directly.
SERVER_HTTP: Final = httpx.Client(
    timeout=ANSWER_SECONDS, trust_env=False, limits=httpx.Limits(max_keepalive_connections=0)
)


class Health(NamedTuple):
    """The result of a health check of one server.

    Attributes:
        ok: Whether the server is healthy.
        detail: Text with information from the server, or with the reason why it is not healthy.
        do: What the operator should do next, if that is known from the check; otherwise empty.
    """

    ok: bool
    detail: str
    do: str = ""


def check_broker(address: str, node: int, brokers: int = 1) -> Health:
    """Check whether a Kafka broker responds and has joined its cluster.

    Args:
        address: Address of the broker, `host:port`.
        node: Node ID of the broker.
        brokers: Minimum number of brokers in the cluster.

    Returns:
        Healthy if the metadata returned by the broker contains the broker itself, a controller and
        enough brokers. Otherwise, unhealthy with the reason, even if the broker does not respond.
    """
    if not accepts_connections(address):
        return Health(False, "does not listen")
    try:
        metadata = broker_metadata(KafkaCluster(bootstrap=address), ANSWER_SECONDS)
    except Unavailable as error:
        return Health(False, str(error))
    if node not in metadata.brokers:
        return Health(False, "has not joined its cluster")
    if metadata.controller_id < 0:
        return Health(False, "its cluster has no controller")
    count = len(metadata.brokers)
    return Health(
        count >= brokers,
        f"sees {count} broker{'' if count == 1 else 's'}, {len(metadata.topics)} topics",
    )


def check_namenode(address: str) -> Health:
    """Check whether an HDFS NameNode responds, has left safe mode and has a live DataNode.

    Args:
        address: HTTP address of the NameNode, `host:port`.

    Returns:
        Healthy if all conditions are met. Otherwise, unhealthy with the reason, even if the
        NameNode does not respond.
    """
    try:
        _get_json(address, "/webhdfs/v1/?op=GETFILESTATUS")
        bean = _get_bean(address, "Hadoop:service=NameNode,name=NameNodeInfo")
    except _NoUsableResponse as error:
        return Health(False, str(error))
    if "Resources are low" in bean.get("Safemode", ""):
        return Health(
            False,
            "in safe mode, because the disk of its data folder is almost full",
            "free space on this disk; then restart the NameNode, or run `hdfs dfsadmin "
            "-safemode leave`",
        )
    if bean.get("Safemode"):
        return Health(False, "in safe mode: nothing can be written", LEAVE_SAFE_MODE)
    live = len(json.loads(bean.get("LiveNodes", "{}")))
    return Health(
        live > 0,
        f"{live} live datanode{'' if live == 1 else 's'}",
        "" if live else "check that DataNodes are running (docs/operate/runbooks/datanode-down.md)",
    )


def check_datanode(address: str, namenode: str) -> Health:
    """Check whether an HDFS DataNode sent a heartbeat to its NameNode in the last 5 seconds.

    A heartbeat from a previous process of the DataNode is ignored.

    Args:
        address: HTTP address of the DataNode, `host:port`.
        namenode: HTTP address of its NameNode, `host:port`.

    Returns:
        Healthy if there was such a heartbeat. Otherwise, unhealthy with the reason, even if a
        server does not respond.
    """
    try:
        uptime_seconds = _get_bean(address, "java.lang:type=Runtime")["Uptime"] / 1000
    except _NoUsableResponse as error:
        return Health(False, str(error))
    try:
        bean = _get_bean(namenode, "Hadoop:service=NameNode,name=NameNodeInfo")
    except _NoUsableResponse as error:
        return Health(
            False,
            f"it runs, but its NameNode cannot report its state: {error}",
            "resolve the problem of the NameNode first",
        )
    nodes = json.loads(bean.get("LiveNodes", "{}")).values()
    known_as = _with_ip_address(address)
    silent_seconds = min(
        (int(node["lastContact"]) for node in nodes if node.get("infoAddr") == known_as),
        default=None,
    )
    # The NameNode rounds down to whole seconds. One second of margin ensures that the heartbeat
    # came from this process, not from the previous one.
    if silent_seconds is None or silent_seconds + 1 >= uptime_seconds:
        return Health(False, "not registered with its NameNode yet")
    return Health(
        silent_seconds <= HEARTBEAT_SECONDS_MAX,
        f"last heartbeat to its NameNode {silent_seconds} s ago",
    )


def check_registry(address: str) -> Health:
    """Check whether the schema registry returns its list of subjects.

    Args:
        address: HTTP address of the registry, `host:port`.

    Returns:
        Healthy with the number of subjects. Otherwise, unhealthy with the reason, even if the
        registry does not respond.
    """
    try:
        subjects = _get_json(address, f"{CONFLUENT_PATH}/subjects")
    except _NoUsableResponse as error:
        return Health(False, str(error))
    return Health(True, f"{len(subjects)} subjects")


def check_mirror(address: str) -> Health:
    """Check whether the REST server of MirrorMaker 2 accepts a connection within one second.

    MirrorMaker 2 opens its REST port after it has connected to both clusters.

    Args:
        address: Address of the REST server, `host:port`.

    Returns:
        Healthy if the connection is accepted, otherwise unhealthy. No exception is raised.
    """
    return (
        Health(True, "REST listens")
        if accepts_connections(address)
        else Health(False, "REST does not listen")
    )


def check_mirror_watch(address: str) -> Health:
    """Check whether the monitor of the mirror (`hourmark mirror watch`) serves its metrics.

    The values of the metrics are not checked.

    Args:
        address: HTTP address of the monitor, `host:port`.

    Returns:
        Healthy if the request succeeds. Otherwise, unhealthy with the reason, even if the monitor
        does not respond.
    """
    try:
        answer = SERVER_HTTP.get(f"http://{address}/metrics")
    except httpx.HTTPError as error:
        return Health(False, f"no metrics: {error}")
    return Health(answer.is_success, f"metrics respond with status {answer.status_code}")


class _NoUsableResponse(Exception):
    """A server does not respond, or its response is invalid.

    The message contains the reason.
    """


def _get_bean(address: str, name: str) -> dict[str, Any]:
    for bean in _get_json(address, f"/jmx?qry={name}").get("beans", []):
        return dict(bean)
    raise _NoUsableResponse("still starting")


def _get_json(address: str, path: str) -> Any:
    try:
        return SERVER_HTTP.get(f"http://{address}{path}").raise_for_status().json()
    except httpx.ConnectError as error:
        raise _NoUsableResponse("does not listen") from error
    except httpx.HTTPStatusError as error:
        raise _NoUsableResponse(
            f"responds with status {error.response.status_code} to {path}"
        ) from error
    except httpx.HTTPError as error:
        raise _NoUsableResponse(f"no response: {error}") from error
    except ValueError as error:
        raise _NoUsableResponse(f"the response at {path} is not JSON") from error


def _with_ip_address(address: str) -> str:
    # A NameNode lists its DataNodes by IP address. An unresolvable address is returned unchanged.
    host, port = address.rsplit(":", 1)
    with contextlib.suppress(OSError):
        return f"{socket.gethostbyname(host)}:{port}"
    return address


def accepts_connections(address: str) -> bool:
    """Return whether a server accepts a TCP connection within one second.

    Args:
        address: Address of the server, `host:port`.

    Returns:
        True if the connection is accepted. False if it is refused or times out, or if the host name
        does not resolve.
    """
    host, port = address.rsplit(":", 1)
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1.0):
        return True
    return False
