"""What is stored and torn, flipped or gone, checkpoints of tailers and staged files; and storage
that takes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import httpx
from tests.faults.chaos.faults.fault import Fault, Heal, NotInjected, index_of
from tests.faults.chaos.faults.processes import CLIENTS
from tests.faults.chaos.flows import ALL, Flow
from tests.support.servers import dfsadmin, set_safe_mode

from hourmark_verify.judge.webhdfs import WebHdfsReader, hdfs_path

if TYPE_CHECKING:
    from tests.faults.chaos.world import World

_REFUSED_S: Final = 60.0
_HOLD_S: Final = (5.0, 20.0)
_STAGING: Final = "_staging"


def _torn_checkpoint(host: str, world: World, pick: float) -> Heal:
    """SIGKILL; the middle of the checkpoint's write-ahead log is torn.

    The tailer must refuse to start until it is put back.

    Each bit of it is turned: zeros would change nothing where a page has nothing.
    """
    name = f"tailer-{host}"
    victim, log = (
        world.victims[name],
        world.host_config(host).tailer.state_dir / "checkpoint.sqlite-wal",
    )
    world.hit.add(name)
    victim.kill()
    whole = log.read_bytes()
    at = int(pick * 0.9 * len(whole))
    log.write_bytes(
        whole[:at] + bytes(byte ^ 0xFF for byte in whole[at : at + 64]) + whole[at + 64 :]
    )
    victim.start()
    world.wait(lambda: not victim.is_alive(), f"{name} to refuse its torn checkpoint", _REFUSED_S)

    def heal() -> None:
        log.write_bytes(whole)
        victim.come_back()
        world.hit.discard(name)

    return heal


def _staged_file(delete: bool, world: World, pick: float) -> Heal:
    """A staged file of events that no bucket took in yet, if there is one: a bit of it is flipped,
    or it is gone.
    """
    storage = world.stack.layout.address("namenode-http")
    hdfs = world.hdfs()
    root = f"{hdfs_path(world.config.storage.root)}/{_STAGING}"
    try:
        files = sorted(_files(hdfs, root), key=lambda found: found[1])
        if not files:
            raise NotInjected("nothing is staged")
        path = files[-1 - index_of(pick, min(5, len(files)))][0]
        url, user = f"http://{storage}/webhdfs/v1{path}", {"user.name": world.config.storage.user}
        with hdfs.open(path).content as opened:
            content = bytearray(opened.read())
        if delete:
            httpx.delete(url, params={"op": "DELETE", **user}, trust_env=False).raise_for_status()
        else:
            content[index_of(pick, len(content))] ^= 1
            parameters = {"op": "CREATE", "overwrite": "true", **user}
            httpx.put(
                url,
                params=parameters,
                content=bytes(content),
                follow_redirects=True,
                trust_env=False,
            ).raise_for_status()
    finally:
        hdfs.close()
    return lambda: None


def _safe_mode(world: World, _pick: float) -> Heal:
    """HDFS is read, and not written to."""
    set_safe_mode(world.stack, "enter")
    return lambda: set_safe_mode(world.stack, "leave")


def _full(world: World, _pick: float) -> Heal:
    """No block more has room below the root: a quota, which HDFS keeps as it does the end of its
    disks.
    """
    root = hdfs_path(world.config.storage.root)
    dfsadmin(world.stack, "-setSpaceQuota", "1", root)

    def heal() -> None:
        dfsadmin(world.stack, "-clrSpaceQuota", root)

    return heal


def _files(hdfs: WebHdfsReader, folder: str) -> list[tuple[str, int]]:
    """All files below, with when they were written."""
    found: list[tuple[str, int]] = []
    for entry in hdfs.list(folder):
        path = f"{folder}/{entry.name}"
        found += _files(hdfs, path) if entry.folder else [(path, entry.modified_ms)]
    return found


FAULTS: Final[Sequence[Fault]] = (
    Fault(
        "tailer-a-checkpoint-torn",
        frozenset(("tailer-a",)),
        ALL - {Flow.TAILER_A, Flow.CLOSING},
        _HOLD_S,
        partial(_torn_checkpoint, "a"),
    ),
    Fault(
        "hdfs-in-safe-mode", frozenset(("hdfs",)), CLIENTS | {Flow.MIRROR}, (20.0, 60.0), _safe_mode
    ),
    Fault("hdfs-full", frozenset(("hdfs",)), CLIENTS | {Flow.MIRROR}, (20.0, 60.0), _full),
    Fault(
        "staged-file-flipped",
        frozenset(("hdfs", "driver")),
        ALL,
        _HOLD_S,
        partial(_staged_file, False),
    ),
    Fault(
        "staged-file-removed",
        frozenset(("hdfs", "driver")),
        ALL,
        _HOLD_S,
        partial(_staged_file, True),
    ),
)
