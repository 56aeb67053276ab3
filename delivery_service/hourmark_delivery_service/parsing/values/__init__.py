"""Encoding of texts and JSON values as Avro."""
