"""The bucket's files: sorted, deduplicated, read back."""
