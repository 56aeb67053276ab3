"""The inputs and the results of a rebuild of the ledger."""

from __future__ import annotations

import dataclasses

from hourmark.config.groups import KafkaSettings
from hourmark.rules.revision import RulesBook
from hourmark_etl.storage import Storage
from hourmark_etl.topics import CentralCluster


@dataclasses.dataclass(frozen=True, kw_only=True)
class RebuildSources:
    """The sources from which a lost ledger (the ETL's state database) is rebuilt.

    Attributes:
        storage: Storage with buckets and staged files (copies of Kafka records).
        kafka: The Kafka settings.
        central: The central cluster.
        rules: All revisions of the parsing rules in the Kafka topic of rules.
        bucket_seconds: Length of a bucket in seconds.
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
    """The result of rebuilding a lost ledger (the ETL's state database).

    The object is filled during the rebuild.

    Attributes:
        ledger: Id of the ledger.
        commit: Commit number of the rebuilt ledger.
        types: Number of event types.
        buckets: Number of closed buckets.
        staged_files: Number of staged files (copies of Kafka records) that are reused.
        lost: Human-readable descriptions of open offset gaps (missing records). Hours stay open
            until an operator's override accepts these gaps.
        notes: Other human-readable messages for the operator.
    """

    ledger: str = ""
    commit: int = 0
    types: int = 0
    buckets: int = 0
    staged_files: int = 0
    lost: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
