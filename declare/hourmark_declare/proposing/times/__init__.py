"""Timestamps in text: found with a grammar, read with one format, in a time zone."""
