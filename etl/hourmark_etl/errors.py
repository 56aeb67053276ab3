"""What stops the ETL, and what an operator does about it.

HourmarkError
└── EtlStop                 the driver ends; a supervisor starts it again from the ledger, unless it says otherwise
    ├── StaleDriver         another driver has taken over, or offsets are not where this one left them
    ├── TopicReplaced       a topic was deleted and recreated
    ├── DataLoss            records are gone before they were staged, or staged again
    ├── BadRecord           a record of a control topic that no delivery service wrote: its partition waits
    └── ForeignLedger       storage holds buckets that this ledger has not closed: it is an older copy, or another
OlderLedger (Unavailable)   the ledger is an older version's, and whoever asks may not migrate it
DamagedRow (Unavailable)    a row of the ledger is not as it was written: what needs it waits until an operator has acted
Unreadable (a Finding)      a staged file cannot be read: it is staged again from Kafka
"""

from __future__ import annotations

from hourmark.errors import Finding, HourmarkError, Unavailable


class EtlStop(HourmarkError):
    """The driver must not go on."""


class StaleDriver(EtlStop):
    """Another driver has taken over; this one must change nothing more."""


class TopicReplaced(EtlStop):
    """A topic has another id than the ledger remembers: its offsets mean something else."""


class DataLoss(EtlStop):
    """Offsets that are to be read are gone from Kafka.

    Staging passes over them, by its next plan, and the ledger keeps them.
    """


class ForeignLedger(EtlStop):
    """Storage holds what this ledger has not closed: an older copy was restored, or the root is
    another ledger's.
    """


class NoLedger(Unavailable):
    """There is no ledger, it is lost, or it knows no types: it waits for an operator."""


class OlderLedger(Unavailable):
    """The ledger is of an older version, and a question does not migrate it."""


class BadRecord(EtlStop):
    """A record of a control topic that cannot be staged, with its place. Pickles whole."""

    def __init__(self, topic: str, partition: int, offset: int, why: str) -> None:
        super().__init__(topic, partition, offset, why)
        self.topic, self.partition, self.offset, self.why = topic, partition, offset, why

    def __str__(self) -> str:
        return (
            f"topic {self.topic} partition {self.partition} offset {self.offset}: {self.why}; "
            "only the delivery service may "
            "write to this topic, and nothing is staged past this record. Find who wrote it, "
            "or what changed it"
        )


class DamagedRow(Unavailable):
    """A row of the ledger is not as it was written.

    `event_type`: the type that waits for it, where it is one's.
    """

    def __init__(self, table: str, key: str, event_type: str | None = None) -> None:
        super().__init__(table, key, event_type)
        self.table, self.key, self.event_type = table, key, event_type

    def __str__(self) -> str:
        return (
            f"the ledger's row of {self.table} ({self.key}) is not as it was written, by its "
            "digest: a disk, memory or a hand "
            "changed it, and nothing goes on with it. `hourmark ledger check` names all such "
            "rows; restore the newest copy of "
            "the ledger, or recreate it by `hourmark ledger rebuild`"
        )


class Unreadable(Finding):
    """A staged file that the ledger lists is missing or damaged; `path` is relative to the storage
    root. Pickles whole.

    `event_type`: who asks for it, where that is no type whose next bucket needs it.
    """

    def __init__(self, path: str, why: str, event_type: str | None = None) -> None:
        super().__init__(path, why, event_type)
        self.path, self.why, self.event_type = path, why, event_type

    def __str__(self) -> str:
        return (
            f"the staged file {self.path} cannot be read ({self.why}); it is staged again "
            "from its offsets in Kafka"
        )
