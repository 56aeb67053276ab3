"""Reads the status that an HDFS NameNode reports on its HTTP port, outside of WebHDFS."""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

_JMX: Final = "/jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo"
# No proxy, as in WebHDFS: addresses of the cluster are internal.
_DIRECT: Final = build_opener(ProxyHandler({}))


def read_namenode_info(webhdfs: str, seconds: float) -> dict[str, Any] | None:
    """Return the attributes of an HDFS NameNode's JMX bean `NameNodeInfo`.

    Examples are the safe mode, the live DataNodes and the number of missing blocks.

    Args:
        webhdfs: HTTP address of the NameNode (setting `storage.webhdfs`).
        seconds: Timeout of the request in seconds.

    Returns:
        Values by attribute name. None if the server does not have this bean, for example because it
        is a WebHDFS gateway.

    Raises:
        OSError: The server does not answer in time.
    """
    try:
        with _DIRECT.open(webhdfs.rstrip("/") + _JMX, timeout=seconds) as answer:
            (bean,) = json.load(answer)["beans"]
            return dict(bean)
    except (HTTPError, ValueError, KeyError, TypeError):
        return None
