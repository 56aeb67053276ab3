"""Every check of the project behind one command, `hourmark test`."""
