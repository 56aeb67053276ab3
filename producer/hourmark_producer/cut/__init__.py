"""Where files are cut into byte ranges."""
