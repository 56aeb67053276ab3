"""From what a NameNode says of itself to findings. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hourmark_declare.doctor.finding import Answer, finding, well

CHECK: Final = "storage"


def namenode_judged(bean: Mapping[str, Any], replication: int) -> Iterator[Answer]:
    """`bean`: NameNodeInfo, as the NameNode's /jmx has it."""
    if bean.get("Safemode"):
        yield finding(
            CHECK, "NameNode", "it is in safe mode: nothing can be written",
            "see that its datanodes run; where it does not leave by itself: hdfs dfsadmin -safemode get",
        )  # fmt: skip
    if missing := int(bean.get("NumberOfMissingBlocks", 0)):
        yield finding(
            CHECK, "NameNode", f"{missing} blocks have no replica left", "bring datanodes back; hdfs fsck names the files"
        )
    live = len(json.loads(bean.get("LiveNodes", "{}")))
    if live < replication:
        yield finding(
            CHECK, "NameNode", f"{live} datanodes live, and files are to have {replication} replicas (storage.replication)",
            "bring the others up, or set storage.replication where there are no more",
        )  # fmt: skip
    else:
        yield well(CHECK, "NameNode", f"{live} datanodes live, {replication} replicas")
