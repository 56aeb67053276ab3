"""What a rebuild reads, and what it found."""

from __future__ import annotations

import dataclasses

from hourmark.config.groups import KafkaSettings
from hourmark.rules.revision import RulesBook
from hourmark_etl.storage import Storage
from hourmark_etl.topics import Central


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outside:
    """What a rebuild reads. `rules`: every revision that the topic has."""

    storage: Storage
    kafka: KafkaSettings
    central: Central
    rules: RulesBook
    bucket_seconds: int
    now_ms: int


@dataclasses.dataclass(kw_only=True)
class Rebuilt:
    """What was found. `lost`: what holds types until an override; `notes`: what else an operator
    should know.
    """

    ledger: str = ""
    commit: int = 0
    types: int = 0
    buckets: int = 0
    staged_files: int = 0
    lost: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
