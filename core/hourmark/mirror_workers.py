"""Who shares the mirror now, and who leads: its workers are a group of Kafka Connect, `<source>-mm2`, on the target cluster."""

from __future__ import annotations

import struct
import warnings
from typing import NamedTuple
from urllib.parse import urlsplit

from confluent_kafka import KafkaError, KafkaException

from hourmark.config_groups import LOOPBACK_HOSTS
from hourmark.errors import Unavailable
from hourmark.kafka import TIMEOUT_S, Cluster


class Leader(NamedTuple):
    """As members were told: who it is in the group, anew after each start, and the address of its REST server."""

    member: str = ""
    address: str = ""


NOBODY = Leader()


class Workers(NamedTuple):
    """`hosts`: from where each reaches the target; `leader`: NOBODY where none leads, or it is not told."""

    hosts: tuple[str, ...] = ()
    leader: Leader = NOBODY

    @property
    def cut_in_two(self) -> bool:
        """Whether workers on several hosts have a leader that they would look for on their own: `mirror.rest_host` is wrong."""
        return len(set(self.hosts)) > 1 and urlsplit(f"//{self.leader.address}").hostname in LOOPBACK_HOSTS


def workers(central: Cluster, edge_alias: str) -> Workers:
    """Those that are in the group now. Unavailable, also where this user may not see them, or nobody knows just now."""
    group = f"{edge_alias}-mm2"
    with warnings.catch_warnings():  # what should be used instead knows groups of consumers only
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            found = central.admin.list_groups(group, timeout=TIMEOUT_S)
        except KafkaException as error:
            raise _untold(group, error.args[0]) from error
    if wrong := next((each.error for each in found if each.error is not None), None):
        raise _untold(group, wrong)
    there = [member for each in found for member in each.members]
    leaders = [leader for member in there if (leader := leader_in(member.assignment)) != NOBODY]
    return Workers(tuple(sorted(str(member.client_host).lstrip("/") for member in there)), next(iter(leaders), NOBODY))


def _untold(group: str, error: KafkaError) -> Unavailable:
    return Unavailable(f"the central cluster did not tell of group {group}: {error.str()}; may this user describe it?")


def leader_in(assignment: bytes | None) -> Leader:
    """Who leads as a member was told it (Kafka Connect's protocol: version, error, member, URL)."""
    if not assignment or len(assignment) < 6:
        return NOBODY
    member, at = _text(assignment, 4)
    url, _ = _text(assignment, at)
    return Leader(member, urlsplit(url).netloc)


def _text(content: bytes, at: int) -> tuple[str, int]:
    """A string with its length before it, -1 for none, and where it ends."""
    (length,) = struct.unpack_from(">h", content, at)
    end = at + 2 + max(0, length)
    return content[at + 2 : end].decode(), end
