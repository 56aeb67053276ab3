"""Kafka clients, readers of committed records, and small compacted topics."""
