"""Evaluates what an HDFS NameNode reports about itself. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hourmark.commands.server_status import LEAVE_SAFE_MODE
from hourmark_declare.doctor.check_result import DoctorCheckResult, finding_result, passed_result

CHECK: Final = "storage"
FREE_PERCENT_MIN: Final = 5.0  # a NameNode does not distribute blocks well on fuller disks


def evaluate_namenode(bean: Mapping[str, Any], replication: int) -> Iterator[DoctorCheckResult]:
    """Check safe mode, missing blocks, free space and live datanodes of an HDFS NameNode.

    Args:
        bean: Attributes of the JMX bean `NameNodeInfo`, as returned by the NameNode from `/jmx`.
        replication: Value of the setting `storage.replication`, the required number of datanodes.

    Yields:
        A finding for each problem. A passed result if enough datanodes are live, even if there are
        other findings.
    """
    if bean.get("Safemode"):
        yield finding_result(
            CHECK,
            "NameNode",
            "it is in safe mode: nothing can be written",
            LEAVE_SAFE_MODE,
        )
    if missing := int(bean.get("NumberOfMissingBlocks", 0)):
        yield finding_result(
            CHECK,
            "NameNode",
            f"{missing} blocks have no replica left",
            "bring datanodes back; hdfs fsck names the files",
        )
    if (free := float(bean.get("PercentRemaining", 100.0))) < FREE_PERCENT_MIN:
        yield finding_result(
            CHECK,
            "NameNode",
            f"{free:.1f} % of its datanodes' disks are free, at least "
            f"{FREE_PERCENT_MIN:g} should be",
            "add disks or datanodes, or delete what is not needed: where they are full, "
            "nothing is staged and nothing closes",
        )
    live = len(json.loads(bean.get("LiveNodes", "{}")))
    if live < replication:
        yield finding_result(
            CHECK,
            "NameNode",
            f"{live} datanodes live, and files are to have {replication} "
            "replicas "
            "(storage.replication)",
            "bring the others up, or set storage.replication where there are no more",
        )
    else:
        version = f"version {bean['SoftwareVersion']}, " if "SoftwareVersion" in bean else ""
        yield passed_result(
            CHECK, "NameNode", f"{version}{live} datanodes live, {replication} replicas"
        )
