"""Staged files, the listings of closing rounds, and records that were set aside."""
