"""Whether the target holds what the source holds."""
