"""Requests under way: scheduling, memory, duplicates, and the path into the queue."""
