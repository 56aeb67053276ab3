"""What runs on log hosts: the File Tailer. It ships raw bytes and parses nothing.

Small dependencies: httpx and zstandard. One idea per module, the pure ones first:

| module | holds |
|---|---|
| `cutting` | where a file is cut into ranges (pure) |
| `truncation` | what a file's size and last bytes say about its past (pure) |
| `caught_up` | since when a source is known to be read and acknowledged to its end |
| `identity` | device, inode and birth time of an open file |
| `discovery` | files by globs, and what could not be looked at |
| `files` | what is known of each followed file: its durable position, and what was last seen of it |
| `checkpoint` | the durable side of that, and the spool of unacknowledged ranges (SQLite) |
| `installation` | host id, the lock of the state folder, and the refusal to start without a checkpoint |
| `scanner` | one look at everything: new, renamed, deleted and missing files |
| `link` | the delivery service as seen from here: its clock, its rules, ranges and reports |
| `follower` | one file's next step: examine, cut, spool, send, acknowledge |
| `schedule` | whose step is next, and who waits for a retry |
| `reports` | host reports |
| `tailer`, `cli` | all of it, running |
"""
