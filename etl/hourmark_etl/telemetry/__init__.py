"""Self-monitoring of the driver: metrics, the periodic progress line, and its status."""
