"""Commands that belong to no single component."""
