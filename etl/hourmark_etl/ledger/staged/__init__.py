"""Staged files, the queries of closing rounds, and set-aside records."""
