"""The configuration: its groups of settings, how it is loaded, and what of it may be shown."""
