"""Buckets as they stand on storage: read them, and verify one without the ledger."""
