"""Closed buckets on storage: reading them, and verifying them without the ledger."""
