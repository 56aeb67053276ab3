"""Is it well? Asked of each server itself, in its own words; every answer comes within a few
seconds.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
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
    """`detail` says what was answered, or what is amiss."""

    ok: bool
    detail: str


def of_broker(address: str, node: int, brokers: int = 1) -> Health:
    """Well when its own metadata names it among at least so many `brokers`, and a controller."""
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
    """Well when WebHDFS answers and it is out of safe mode, which it leaves with its first
    datanode.
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
    """Well when its NameNode heard from it a moment ago, and since it started.

    The NameNode is asked, because a DataNode that is asked too early writes pages of stack traces
    into its log.
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
    """Well when the Confluent API lists its subjects."""
    try:
        subjects = _get(address, f"{CONFLUENT_PATH}/subjects")
    except _NoAnswer as error:
        return Health(False, str(error))
    return Health(True, f"{len(subjects)} subjects")


def of_mirror(address: str) -> Health:
    """Well when its REST server listens, which MirrorMaker 2 opens once it has found both
    clusters.
    """
    return (
        Health(True, "REST listens") if listens(address) else Health(False, "REST does not listen")
    )


def of_watch(address: str) -> Health:
    """Well when its metrics answer; what they say of the mirror is another matter."""
    try:
        answer = _HTTP.get(f"http://{address}/metrics")
    except httpx.HTTPError as error:
        return Health(False, f"no metrics: {error}")
    return Health(answer.is_success, f"metrics answer {answer.status_code}")


class _NoAnswer(Exception):
    """The server did not answer, or not as it does when it is well."""


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
    """Whether a connection is taken."""
    host, port = address.rsplit(":", 1)
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1.0):
        return True
    return False
