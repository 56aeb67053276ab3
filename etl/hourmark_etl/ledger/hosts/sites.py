"""Checks that the configuration contains all sites of a ledger.

Rows of the first site have no site name, as in ledgers of one site, so the first site must not
change: with several sites, `meta` stores its audit topic. A site must not be removed from the
configuration while the ledger has audit records of it, because hours would no longer wait for it.
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
    """Check that the configuration contains every site of the ledger and has the same first site.

    A site is an edge cluster; the first site is the cluster in the setting `kafka.edge`. The check
    prevents the removal of a site whose audit records are in the ledger. It also prevents a change
    of the first site.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the closer, the process that closes hours.
        audits: Name of each configured site, by the name of its audit topic on the central cluster.

    Raises:
        UsageError: A site of the ledger is not configured, or the first site has changed.
        StaleDriver: Another process has taken over the lease.
    """
    (first,) = (topic for topic, site in audits.items() if site == FIRST_SITE)
    with database.transaction(lease) as connection:
        if gone := sorted(read_further_sites(connection) - set(audits.values())):
            raise UsageError(
                f"the ledger contains promises of the sites {', '.join(gone)}, which are missing "
                "from kafka.further_edges: without them, no bucket can be proved complete. Add "
                "them again"
            )
        named = connection.execute(
            select(tables.meta.c.value).where(tables.meta.c.key == FIRST_AUDIT)
        ).scalar()
        if named is None and len(audits) > 1:
            connection.execute(insert(tables.meta).values(key=FIRST_AUDIT, value=first))
        elif named not in (None, first):
            raise UsageError(
                f"the ledger's first site has the audit topic {named}, but according to "
                f"kafka.edge_alias it is {first}: set kafka.edge to the original site, and list "
                "other sites in kafka.further_edges"
            )


def read_further_sites(connection: Connection) -> set[str]:
    """Return the names of all sites with audit data in the ledger, except the first site.

    A site is an edge cluster.

    Args:
        connection: A transaction of the ledger.

    Returns:
        Names of sites; empty if the ledger has data of the first site only.
    """
    site, settled = tables.audit_groups.c.site, tables.frontiers.c.settled_further
    staged = connection.execute(select(site).where(site.is_not(None)).distinct()).scalars()
    counted = connection.execute(select(settled).where(settled.is_not(None))).scalars()
    return {*staged, *(name for text in counted for name in json.loads(text))}
