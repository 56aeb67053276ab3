"""What hosts have reported: their sources, losses and sites."""
