"""Java 17 or 21: the machine's own, or one from the Python package index, locked by digest."""
