"""What the tailer knows of one file: its identity, its fingerprints, its names, its progress."""
