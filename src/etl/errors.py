"""What stops the ETL, and what an operator does about it.

HourmarkError
└── EtlStop                 the driver ends; a supervisor starts it again from the ledger, unless it says otherwise
    ├── StaleDriver         another driver has taken over, or offsets are not where this one left them
    ├── TopicReplaced       a topic was deleted and made anew
    ├── DataLoss            records are gone before they were staged
    ├── SchemaChanged       the registry gives another schema for an id than before
    └── ForeignLedger       storage holds buckets that this ledger has not closed: it is an older copy, or another
"""

from __future__ import annotations

from hourmark.errors import HourmarkError


class EtlStop(HourmarkError):
    """The driver must not go on."""


class StaleDriver(EtlStop):
    """Another driver has taken over; this one must change nothing more."""


class TopicReplaced(EtlStop):
    """A topic has another id than the ledger remembers: its offsets mean something else."""


class DataLoss(EtlStop):
    """Offsets that the ledger has not passed are no longer readable."""


class ForeignLedger(EtlStop):
    """Storage holds what this ledger has not closed: an older copy was restored, or the root is another ledger's."""


class SchemaChanged(EtlStop):
    """A schema id stands for another schema than before."""
