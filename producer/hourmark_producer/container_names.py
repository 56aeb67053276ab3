"""What the path of a container's log says of it, as Kubernetes names them. Pure."""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = r"[a-z0-9.-]{1,253}"  # of Kubernetes' objects
_CONTAINERS: Final = re.compile(
    rf".*/containers/(?P<pod>{_NAME})_(?P<namespace>{_NAME})_(?P<container>{_NAME})-(?P<container_id>[0-9a-f]{{64}})\.log.*"
)
_PODS: Final = re.compile(
    rf".*/pods/(?P<namespace>{_NAME})_(?P<pod>{_NAME})_(?P<pod_uid>[0-9a-f-]{{1,64}})/(?P<container>{_NAME})/\d+\.log.*"
)
NAMES: Final = ("pod", "namespace", "container", "container_id", "pod_uid", "stream")  # the last is the service's


def container_fields(path: str) -> dict[str, str]:
    """`pod`, `namespace`, `container`, and `container_id` or `pod_uid`; nothing of another path."""
    match = _CONTAINERS.fullmatch(path) or _PODS.fullmatch(path)
    return {} if match is None else match.groupdict()
