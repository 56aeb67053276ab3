"""Proposes a configuration for log files: formats are detected, tried and rendered as files."""
