"""A whole Hourmark for users' own tests, in one line: `with hourmark.testing.stack() as stack:`.

It runs in one container, with brokers, HDFS, registry, service, tailer and ETL of its own, and is
gone afterwards. A test posts events or writes lines, waits until they are in closed buckets, and
reads them: docs/containers.md. In pytest, the fixture `hourmark_stack` of `hourmark.testing.plugin`
is one for the whole session.

Needs a container engine on this machine (`engine`: docker or podman), the image, and the extra
`testing`. No other module of Hourmark imports this one.
"""

from __future__ import annotations

try:
    import testcontainers.core  # noqa: F401  # only asked for
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "hourmark.testing needs more packages: install hourmark[testing]", name=error.name
    ) from error

from hourmark.testing.container import stack
from hourmark.testing.engine import NoEngine
from hourmark.testing.handle import Placed, Posted, Stack

__all__ = ["NoEngine", "Placed", "Posted", "Stack", "stack"]
