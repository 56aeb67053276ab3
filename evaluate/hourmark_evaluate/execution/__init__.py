"""What a running trial uses."""
