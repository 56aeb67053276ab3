"""Who shares the mirror now, and who leads: its workers are a group of Kafka Connect, `<source>-mm2`, on the target cluster."""

from __future__ import annotations

import struct
import warnings
from urllib.parse import urlsplit

from confluent_kafka import KafkaException

from hourmark.errors import Unavailable
from hourmark.kafka import TIMEOUT_S, Cluster


def members(central: Cluster, edge_alias: str) -> tuple[tuple[str, ...], str]:
    """Hosts of the workers that are in the group now, and the leader's address. Unavailable."""
    group = f"{edge_alias}-mm2"
    with warnings.catch_warnings():  # what should be used instead knows groups of consumers only
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            found = central.admin.list_groups(group, timeout=TIMEOUT_S)
        except KafkaException as error:
            raise Unavailable(f"the central cluster did not tell of group {group}: {error.args[0].str()}") from error
    there = [member for each in found for member in each.members]
    leaders = [leader for member in there if (leader := leader_in(member.assignment))]
    return tuple(sorted(str(member.client_host).lstrip("/") for member in there)), next(iter(leaders), "")


def leader_in(assignment: bytes | None) -> str:
    """The leader's address as a member was told it (Kafka Connect's protocol: version, error, member, URL); empty: it is not."""
    if not assignment or len(assignment) < 6:
        return ""
    (length,) = struct.unpack_from(">h", assignment, 4)
    at = 6 + max(0, length)
    (length,) = struct.unpack_from(">h", assignment, at)
    return urlsplit(assignment[at + 2 : at + 2 + max(0, length)].decode()).netloc
