"""`hourmark types`: what is declared in files, applied to ledger, schema registry and clusters.

The one room that knows others: the ledger (`hourmark_etl.ledger`), where rules live first, and the
parsing of the service, which tries each type.
"""
