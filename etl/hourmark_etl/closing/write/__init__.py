"""Writes the files of buckets: sorted, deduplicated and read back."""
