"""What the ledger stores per Kafka partition: lost records and failed reads."""
