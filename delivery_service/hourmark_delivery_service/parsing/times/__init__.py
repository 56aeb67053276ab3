"""Timestamps: formats, words and time zones."""
