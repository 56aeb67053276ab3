"""Which sites a ledger closes for: what it once waited for, it goes on waiting for, under the same
name.

Rows of the first site name none, as in ledgers of one site. So which one that is must not change:
as soon as there are several, the table `meta` names its audit topic. And a site that was taken out
of the configuration would no longer be waited for, while promises of it are in the ledger.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from sqlalchemy import Connection, insert, select

from hourmark.errors import UsageError
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.model import FIRST_SITE

FIRST_AUDIT: Final = (
    "first_audit"  # in the table `meta`: the audit topic of the first site, where there are several
)


def check_sites(database: Database, lease: Lease, audits: Mapping[str, str]) -> None:
    """UsageError unless the configuration (`audits`: central audit topic → site) has all sites that
    the ledger knows, and the same one first.
    """
    (first,) = (topic for topic, site in audits.items() if site == FIRST_SITE)
    with database.transaction(lease) as connection:
        if gone := sorted(known_further_sites(connection) - set(audits.values())):
            raise UsageError(
                f"the ledger holds promises of the sites {', '.join(gone)}, which "
                "kafka.further_edges does not name: without "
                "them no bucket could be called complete. Name them as before"
            )
        named = connection.execute(
            select(tables.meta.c.value).where(tables.meta.c.key == FIRST_AUDIT)
        ).scalar()
        if named is None and len(audits) > 1:
            connection.execute(insert(tables.meta).values(key=FIRST_AUDIT, value=first))
        elif named not in (None, first):
            raise UsageError(
                f"the ledger's first site has the audit topic {named}, by kafka.edge_alias it "
                f"is {first} now: let kafka.edge be "
                "the site that it was, and name others in kafka.further_edges"
            )


def known_further_sites(connection: Connection) -> set[str]:
    """The sites, but for the first, that promises in the ledger or settled ones are of."""
    site, settled = tables.audit_groups.c.site, tables.frontiers.c.settled_further
    staged = connection.execute(select(site).where(site.is_not(None)).distinct()).scalars()
    counted = connection.execute(select(settled).where(settled.is_not(None))).scalars()
    return {*staged, *(name for text in counted for name in json.loads(text))}
