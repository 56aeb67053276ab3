"""State of one file: identity, fingerprints, patterns, position and schedule."""
