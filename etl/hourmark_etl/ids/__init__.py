"""Ids of closed buckets: lookups.py tells which of them a bucket holds."""
