"""The NameNode that was active last, for each name service that this process uses.

HDFS has at most one active NameNode. The others refuse each operation with StandbyException, so a
client that begins with the wrong one needs one more request. Each process remembers its own order,
which is not part of a pickled storage.
"""

from __future__ import annotations

from typing import Final

_first: Final[dict[tuple[str, ...], int]] = {}


def order_namenodes(namenodes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the addresses of a name service in the order in which to try them.

    Args:
        namenodes: Addresses of all NameNodes, as they are configured.

    Returns:
        The same addresses, beginning with the one that is most likely to be active.
    """
    first = _first.get(namenodes, 0)
    return namenodes[first:] + namenodes[:first]


def begin_with(namenodes: tuple[str, ...], address: str) -> None:
    """Try a NameNode first from now on.

    Args:
        namenodes: Addresses of all NameNodes, as they are configured.
        address: One of these addresses.
    """
    _first[namenodes] = namenodes.index(address)


def begin_after(namenodes: tuple[str, ...], address: str) -> None:
    """Try the NameNode that follows a given one first from now on, and the given one last.

    Args:
        namenodes: Addresses of all NameNodes, as they are configured.
        address: One of these addresses.
    """
    _first[namenodes] = (namenodes.index(address) + 1) % len(namenodes)
