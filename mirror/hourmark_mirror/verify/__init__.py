"""Verifies that the target cluster holds the same records as the source cluster."""
