"""Event ids of closed buckets: lookups.py finds ids, index_files.py names and lists index files."""
