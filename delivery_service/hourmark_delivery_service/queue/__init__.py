"""The durable queue behind the service."""
