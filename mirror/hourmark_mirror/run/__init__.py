"""MirrorMaker 2 as a child process: started, supervised, restarted."""
