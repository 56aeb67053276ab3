"""Ids of closed buckets: lookups.py tells which of them a bucket holds, kept.py how the files of
their index are named.
"""
