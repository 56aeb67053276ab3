"""Avro schemas, datums and the schema registry."""
