"""Sending: from the unread bytes of a file to an acknowledged range."""
