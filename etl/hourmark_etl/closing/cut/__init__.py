"""Decides whether an hour may close: who has reported, what the clusters hold, overrides."""
