"""MirrorMaker 2 as a child process: start, supervision, failure detection, restart."""
