"""The structure of text lines: parts at the same position, and keys and numbers in messages."""
