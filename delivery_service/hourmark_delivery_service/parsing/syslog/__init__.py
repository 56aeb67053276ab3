"""Parsing of syslog lines in the forms that each parser version supports."""
