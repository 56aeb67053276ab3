"""Sources that receive data instead of tailing files: standard input, syslog, systemd's journal.

Most senders cannot repeat what they sent, so received bytes are written to disk first. Each source
has a folder of segments: files to which lines are appended. The tailer tails segments like any log
file. The id of an event depends on its place in the segment, so delivery is exactly once from the
disk on. A segment is removed once it is complete and acknowledged. Ranges contain only synced
bytes, so after a power failure no recorded position exceeds the size of its segment.
"""
