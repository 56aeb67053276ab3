"""Whether content was read before, under another name or in another file."""
