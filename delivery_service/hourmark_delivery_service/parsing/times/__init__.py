"""Parsing of times: formats, named formats, and RFC 3339 timestamps."""
