"""Which files exist: patterns, scans, hints of the kernel, and the end of a file."""
