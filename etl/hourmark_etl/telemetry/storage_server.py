"""Status of the storage of buckets for `hourmark status`.

It is that of a local folder, of an object store, or of HDFS with its NameNodes and DataNodes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from sqlalchemy import or_, select

from hourmark.commands.server_status import LEAVE_SAFE_MODE, ServerStatus
from hourmark.config.loading import Config
from hourmark.errors import HourmarkError, UsageError
from hourmark.printing import name_some
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.maintenance.existing import open_existing_ledger
from hourmark_etl.storage import NotFound, StorageError, open_storage
from hourmark_etl.storage.namenode import NameNodeReport, find_serving, read_namenodes

SILENT_S: Final = 20  # a DataNode sends a heartbeat every few seconds
FREE_MIB_MIN: Final = 256  # `hourmark doctor` warns earlier
FREE_PERCENT_MIN: Final = 1.0
_ANSWER_S: Final = 5
_TYPES: Final = tables.frontiers.c


def storage_server(config: Config) -> list[ServerStatus]:
    """Return the status of the storage that contains the buckets, for `hourmark status`.

    Servers are queried with a timeout of 5 seconds. Errors are part of the status and are not
    raised.

    Args:
        config: Configuration with the settings `storage.root` and `storage.webhdfs`.

    Returns:
        One entry for the local folder, the object store or the active NameNode. Further entries for
        other NameNodes that cannot take over, and for DataNodes that have sent no heartbeat to the
        NameNode for more than 20 seconds. A local folder or object store without content is
        healthy, unless the ledger (the ETL's state database) has closed buckets.
    """
    root = config.storage.root
    if root.startswith("file://"):
        return [_local_folder(config, Path(root.removeprefix("file://")))]
    if root.startswith("s3://"):
        return [_object_store(config)]
    return evaluate_namenodes(read_namenodes(config.storage, _ANSWER_S))


def evaluate_namenodes(reports: Iterable[NameNodeReport]) -> list[ServerStatus]:
    """Check whether HDFS can read and write files, given the reports of all its NameNodes.

    The function performs no I/O.

    Args:
        reports: One report for each address of the setting `storage.webhdfs`, at least one.

    Returns:
        The status of the active NameNode and of silent DataNodes, then one unhealthy entry for each
        other NameNode that cannot take over. Only unhealthy entries if no NameNode is active.
    """
    reports = list(reports)
    serving = find_serving(reports)
    problems = [
        problem
        for report in reports
        if report is not serving and (problem := _passive_problem(report, serving is not None))
    ]
    if serving is None:
        return problems
    if serving.info is None:
        answers = ServerStatus(
            name="namenode", address=serving.address, healthy=True, detail="answers"
        )
        return [answers, *problems]
    evaluated = evaluate_namenode_info(serving.address, serving.info)
    return [evaluated, *_silent_datanodes(serving.info), *problems]


def _passive_problem(report: NameNodeReport, another_serves: bool) -> ServerStatus | None:
    without = (
        "until then, no NameNode can take over if the active one fails"
        if another_serves
        else "until then, nothing is staged and no bucket closes"
    )
    if report.failure:
        detail, do = f"does not respond: {report.failure}", "check that it is running, and its log"
    elif report.state == "observer":
        detail = "is an observer, whose responses may be outdated"
        do = "remove its address from storage.webhdfs"
        return _unhealthy("namenode", report.address, detail, do)
    elif another_serves:
        return None
    else:
        detail = f"is {report.state}, and no NameNode of storage.webhdfs is active"
        do = (
            "make one active (hdfs haadmin -getAllServiceState, hdfs haadmin -failover), or add "
            "the address of the active one to storage.webhdfs"
        )
    return _unhealthy("namenode", report.address, detail, f"{do}; {without}")


def _local_folder(config: Config, folder: Path) -> ServerStatus:
    root = config.storage.root
    try:
        is_empty = not folder.is_dir() or not any(folder.iterdir())
    except PermissionError:
        detail = "exists, but this user has no permission to list it"
        return ServerStatus(name="storage", address=root, healthy=True, detail=detail)
    if is_empty:
        if _has_closed_buckets(config):
            return _unhealthy(
                "storage",
                root,
                f"the folder {'is empty' if folder.is_dir() else 'does not exist'}, but "
                "according to the ledger it contains closed buckets",
                "mount it, or correct storage.root; until then, no bucket closes",
            )
        return ServerStatus(name="storage", address=root, healthy=True, detail="not written yet")
    free_mib = shutil.disk_usage(folder).free >> 20
    if free_mib < FREE_MIB_MIN:
        return _unhealthy(
            "storage",
            root,
            f"{free_mib} MiB are free, but at least {FREE_MIB_MIN} are needed: soon nothing can "
            "be staged, and no bucket can close",
            "free space on its disk (docs/operate/runbooks/disk-full.md)",
        )
    return ServerStatus(name="storage", address=root, healthy=True, detail="exists")


def _object_store(config: Config) -> ServerStatus:
    root = config.storage.root
    try:
        open_storage(config.storage, answer_seconds=_ANSWER_S).list("")
    except NotFound:
        if _has_closed_buckets(config):
            return _unhealthy(
                "storage",
                root,
                "is empty, but according to the ledger it contains closed buckets",
                "correct storage.root, or restore its objects; until then, no bucket closes",
            )
        return ServerStatus(name="storage", address=root, healthy=True, detail="not written yet")
    except StorageError as error:
        return _unhealthy("storage", root, error.what, error.next_step)
    except UsageError as error:
        return _unhealthy("storage", root, str(error), "install the package named there")
    return ServerStatus(name="storage", address=root, healthy=True, detail="answers")


def _has_closed_buckets(config: Config) -> bool:
    try:
        with open_existing_ledger(config) as database:
            begun = or_(_TYPES.hour > _TYPES.first_hour, _TYPES.backfilled_hour.is_not(None))
            return database.fetch(select(_TYPES.type).where(begun).limit(1)).first() is not None
    except HourmarkError:  # the status of the driver reports it
        return False


def evaluate_namenode_info(address: str, info: Mapping[str, Any]) -> ServerStatus:
    """Check whether HDFS can read and write files, given the attributes of its NameNode.

    The function performs no I/O.

    Args:
        address: HTTP address of the NameNode.
        info: Attributes of its JMX bean `NameNodeInfo`, see `NameNodeReport.info`.

    Returns:
        An unhealthy status with the operator's next step if the NameNode is in safe mode, if blocks
        have no replica left, if less than 1 % of the disks is free, or if there is no live
        DataNode; otherwise a healthy status.
    """
    if info.get("Safemode"):
        return _unhealthy(
            "namenode",
            address,
            "in safe mode, so nothing can be written",
            LEAVE_SAFE_MODE,
        )
    if missing := int(info.get("NumberOfMissingBlocks", 0)):
        return _unhealthy(
            "namenode",
            address,
            f"{missing} blocks have no replica left",
            "start the missing DataNodes; `hdfs fsck /` lists the files",
        )
    if (free := float(info.get("PercentRemaining", 100.0))) < FREE_PERCENT_MIN:
        return _unhealthy(
            "namenode",
            address,
            f"{free:.1f} % of the DataNodes' disks are free: soon nothing can be staged, and no "
            "bucket can close",
            "add disks or DataNodes, or delete what is not needed (docs/operate/runbooks/disk-full.md)",
        )
    live = len(_nodes(info))
    if not live:
        return _unhealthy(
            "namenode", address, "no live DataNode", "check that DataNodes are running"
        )
    return ServerStatus(
        name="namenode", address=address, healthy=True, detail=f"{live} live DataNodes"
    )


def _silent_datanodes(info: Mapping[str, Any]) -> Iterator[ServerStatus]:
    silent = sorted(
        name for name, node in _nodes(info).items() if int(node.get("lastContact", 0)) > SILENT_S
    )
    if silent:
        yield _unhealthy(
            "datanode",
            name_some(silent),
            f"no heartbeat to the NameNode for over {SILENT_S} s",
            "on that host, check that the DataNode is running, and check its log",
        )


def _nodes(info: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    found: Mapping[str, Mapping[str, Any]] = json.loads(info.get("LiveNodes", "{}"))
    return found


def _unhealthy(name: str, address: str, detail: str, do: str) -> ServerStatus:
    return ServerStatus(name=name, address=address, healthy=False, detail=detail, do=do)
