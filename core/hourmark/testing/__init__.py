"""A complete Hourmark stack for users' own tests: `with hourmark.testing.stack() as stack:`.

The stack runs in one container with its own brokers, HDFS, registry, service, tailer and ETL, and
is removed afterwards. A test posts events or writes lines, waits until they are in closed buckets,
and reads them; see docs/how-to/test-with-a-local-stack.md. In pytest, the fixture `hourmark_stack` of
`hourmark.testing.plugin` provides one stack for the session.

Requires a container engine on this machine (docker or podman), the image, and the extra `testing`.
No other module of Hourmark imports this package.
"""

from __future__ import annotations

try:
    import testcontainers.core  # noqa: F401  # only asked for
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "hourmark.testing requires additional packages: pip install 'hourmark[testing]'",
        name=error.name,
    ) from error

from hourmark.testing.container import stack
from hourmark.testing.engine import NoEngine
from hourmark.testing.handle import Placed, Posted, Stack

__all__ = ["NoEngine", "Placed", "Posted", "Stack", "stack"]
