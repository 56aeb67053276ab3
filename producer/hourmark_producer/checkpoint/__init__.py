"""The tailer's durable state: one SQLite database, and the files next to it."""
