"""`hourmark types`: applies declared event types to ledger, schema registry and Kafka clusters.

This package uses other components: the ledger (`hourmark_etl.ledger`), which is the first place
where rules are stored, and the parsing of the delivery service, with which each type is tried.
"""
