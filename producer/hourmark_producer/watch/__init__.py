"""Which files exist: scans, inotify, rotation, and the end of files."""
