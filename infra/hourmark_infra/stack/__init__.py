"""The local stack: real Kafka, MirrorMaker 2, HDFS and schema registry as daemons of this user, on
loopback.

    stack = LocalStack.load(home)      # home: a HOURMARK_HOME
    stack.up(); stack.kill("edge-1"); stack.start("edge-1"); stack.wait_ready("edge-1"); stack.down()

A reader's path: `layout` (ports and paths) → `kafka`, `hadoop`, `registry` (settings, pure) →
`servers` (the table of servers) → `process` and `state` (whose process is it) → `health` (asked of
each server itself) → `control` (`LocalStack`) → `cli`. Measured on 2 cores, from nothing but the cached
jars: all eight servers are well after 26 s, and take 1.7 GB; a second `up` takes 0.2 s. A machine
that is busy tenfold needs minutes, so waits are bounded at three.

What must hold: only processes started here are ever signalled, and any step may be cut short by
kill -9 and repeated.
"""

from __future__ import annotations

from hourmark_infra.stack.control import LocalStack

__all__ = ["LocalStack"]
