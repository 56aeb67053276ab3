"""Exceptions of the ETL.

HourmarkError └── EtlStop                 ends the driver; the supervisor starts it again from the
ledger unless the message forbids it
    ├── StaleDriver         another driver has taken over, or committed offsets differ from those this driver left
    ├── TopicReplaced       a topic was deleted and recreated
    ├── DataLoss            records were deleted from Kafka before they were staged, or staged again
    ├── BadRecord           a record of a control topic was not written by a delivery service; its partition waits
    ├── ForeignLedger       storage holds buckets that this ledger has not closed: it is an older copy or another ledger
    └── UnsafeStorage       an object store lets several writers create one object
NoLedger (Unavailable)      there is no ledger, or it has no event types
└── LostLedger              storage has closed buckets, so there was one
OlderLedger (Unavailable)   the ledger has an older version, and the caller may not migrate it
DamagedRow (Unavailable)    a ledger row does not match its digest; whatever needs it waits for an operator
Unreadable (Finding)        a staged file cannot be read; its records are staged again from Kafka
"""

from __future__ import annotations

from hourmark.errors import Finding, HourmarkError, Unavailable


class EtlStop(HourmarkError):
    """Base class of errors that end the driver, the process that stages events and closes buckets.

    A supervisor may start the driver again, unless the message forbids it. The driver then
    continues from the state that is stored in the ledger (the ETL's state database).
    """


class StaleDriver(EtlStop):
    """Raised if another driver process has taken over the lease of this one.

    The process must no longer change the ledger (the ETL's state database) or storage.
    """


class TopicReplaced(EtlStop):
    """Raised if a topic was deleted and recreated, so its id differs from the id in the ledger.

    The offsets in the ledger (the ETL's state database) do not apply to the new topic.
    """


class DataLoss(EtlStop):
    """Raised if Kafka no longer has records that must be staged, that is, copied to storage.

    If the records were not staged before, the ledger (the ETL's state database) stores their
    offsets as an offset gap, and staging continues after them. The error is also raised if the
    records of a lost or damaged staged file cannot be read again.
    """


class ForeignLedger(EtlStop):
    """Raised if storage has closed buckets that this ledger does not contain.

    Either an older copy of the ledger was restored, or the storage root belongs to another ledger.
    """


class UnsafeStorage(EtlStop):
    """Raised if several simultaneous conditional puts of one object succeed on an object store.

    Two drivers could then publish different buckets for the same hour, so the driver does not start.
    """


class NoLedger(Unavailable):
    """Raised if there is no ledger, if it was lost, or if it contains no event types.

    The ledger is the state database of the ETL. The message states the next step for the operator.
    """


class LostLedger(NoLedger):
    """Raised if there is no ledger, or an empty one, although storage has closed buckets.

    The ledger is the state database of the ETL.
    """


class OlderLedger(Unavailable):
    """Raised by read-only commands if the ledger's schema has an older version.

    Read-only commands do not migrate the ledger (the ETL's state database). `hourmark ledger
    upgrade` does, as does the ETL driver at its start.
    """


class BadRecord(EtlStop):
    """Raised if a record of a control topic was not written by a delivery service.

    Control topics contain audit records and host reports. The record and all later ones in its
    partition are not staged (copied to storage) until an operator repairs the cause. Instances can
    be pickled.

    Attributes:
        topic: Name of the topic.
        partition: Partition number.
        offset: Offset of the record.
        why: Readable reason.
    """

    def __init__(self, topic: str, partition: int, offset: int, why: str) -> None:
        super().__init__(topic, partition, offset, why)
        self.topic, self.partition, self.offset, self.why = topic, partition, offset, why

    def __str__(self) -> str:
        return (
            f"topic {self.topic} partition {self.partition} offset {self.offset}: {self.why}; "
            "only the delivery service may write to this topic, and no record after this one is "
            "staged. Find out which program wrote the record, or what changed it"
        )


class DamagedRow(Unavailable):
    """Raised if the digest of a ledger row does not match the row's content.

    An operator must restore or rebuild the ledger (the ETL's state database).

    Attributes:
        table: Name of the table.
        key: Readable primary key of the row.
        event_type: The only event type that needs the row; None if several types may need it.
    """

    def __init__(self, table: str, key: str, event_type: str | None = None) -> None:
        super().__init__(table, key, event_type)
        self.table, self.key, self.event_type = table, key, event_type

    def __str__(self) -> str:
        return (
            f"the ledger's row of {self.table} ({self.key}) does not match its digest: it was "
            "changed by a faulty disk or memory, or manually, and is not used. `hourmark ledger "
            "check` lists all damaged rows; restore the newest copy of the ledger, or recreate "
            "it with `hourmark ledger rebuild`"
        )


class Unreadable(Finding):
    """Raised if a staged file that is recorded in the ledger is missing or damaged.

    A staged file contains records that were copied from Kafka; the ledger is the state database of
    the ETL. The closer stages the records again from Kafka. Instances can be pickled.

    Attributes:
        path: Path of the file, relative to the storage root.
        why: Readable reason.
        event_type: The only event type whose processing needs the file; None if this follows from
            the rows in the file.
    """

    def __init__(self, path: str, why: str, event_type: str | None = None) -> None:
        super().__init__(path, why, event_type)
        self.path, self.why, self.event_type = path, why, event_type

    def __str__(self) -> str:
        return (
            f"the staged file {self.path} cannot be read ({self.why}); its offsets are staged "
            "again from Kafka"
        )
