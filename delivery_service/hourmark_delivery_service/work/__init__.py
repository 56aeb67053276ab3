"""Processing of requests: scheduling, memory limits, deduplication, and delivery to the queue."""
