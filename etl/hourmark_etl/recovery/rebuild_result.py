"""The inputs and the results of a rebuild of the ledger."""

from __future__ import annotations

import dataclasses

from hourmark.config.groups import KafkaSettings
from hourmark.rules.revision import RulesBook
from hourmark_etl.storage import Storage
from hourmark_etl.topics import CentralCluster


@dataclasses.dataclass(frozen=True, kw_only=True)
class RebuildSources:
    """The sources from which a ledger is rebuilt.

    Attributes:
        storage: The storage with buckets and staged files.
        kafka: The Kafka settings.
        central: The central cluster.
        rules: All rules revisions in the rules topic.
        bucket_seconds: Length of a bucket.
        now_ms: Current time in Unix milliseconds.
    """

    storage: Storage
    kafka: KafkaSettings
    central: CentralCluster
    rules: RulesBook
    bucket_seconds: int
    now_ms: int


@dataclasses.dataclass(kw_only=True)
class RebuildResult:
    """The result of rebuilding a ledger; it is filled while the rebuild runs.

    Attributes:
        ledger: Id of the ledger.
        commit: The ledger's commit number.
        types: Number of event types.
        buckets: Number of closed buckets.
        staged_files: Number of reused staged files.
        lost: Readable gaps that block types until an override accepts them.
        notes: Further readable information for the operator.
    """

    ledger: str = ""
    commit: int = 0
    types: int = 0
    buckets: int = 0
    staged_files: int = 0
    lost: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
