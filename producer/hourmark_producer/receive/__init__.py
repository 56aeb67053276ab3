"""Sources that receive data instead of reading log files: standard input, syslog over sockets,
systemd's journal.

The senders cannot be asked again, so received bytes are written to disk first. Each source has a
folder of *segments*: files that are only appended to, line by line. The tailer follows them as it
follows every log file. The id of a line depends on its place in the segment, so delivery is exactly
once from the disk on. A segment is removed when it is complete and acknowledged. Ranges contain
only bytes that were synced, so that after a power failure no position lies behind the segment's
end.
"""
