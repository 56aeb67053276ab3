"""Where files are cut into ranges. Pure functions."""
