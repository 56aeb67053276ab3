"""What runs on log hosts: the File Tailer. It ships raw bytes and parses nothing.

What a source's globs should match: the live file and its names after a rotation by rename
(`app.log*`). Files are told apart by identity, so nothing is sent twice; and a file that was both
made and rotated away while the tailer was down, or within one scan, is found under its later name.
Where only the live name matches (`app.log`), a file that was seen once is still followed under any
name in the same folder. Compressed names are passed over, but for the rest of a file that was
packed unread, and for one that nobody saw before it was packed. With copytruncate, copies that
match are known by name and content, and passed over; what is written between copy and truncation is
lost by copytruncate itself. What a truncation destroyed unread is counted and reported, and what
cannot be counted is reported as unknown.

Small dependencies: zstandard, and google-re2 for records of more than one line. One idea per
module, the pure ones first:

| module | holds |
|---|---|
| `cutting` | where a file is cut into ranges (pure) |
| `record_cutting` | the same where records are more than one line (pure) |
| `cri_cutting` | the same in container logs (pure) |
| `source_cutting` | one of the three, as the source says, and what its ranges say |
| `container_names` | what the path of a container's log says of it (pure) |
| `truncation` | what a file's sizes, head and last bytes say about its past (pure) |
| `losses` | what is known to be lost, and what cannot be known |
| `looking` | a look into an open file |
| `caught_up` | since when a source is known to be read and acknowledged to its end |
| `identity` | device, inode and birth time of an open file |
| `compressed` | the plain content of packed files, in a stream |
| `archives`, `unseen` | packed files that appear, and were never seen before they were packed |
| `explaining` | whether the content of one was read already (pure) |
| `former_names` | what a rotated or copied file may have been called (pure) |
| `rotated` | files that were made and rotated away between two looks, under names that no pattern matches |
| `rest` | what is left of a file that vanished, in a packed one |
| `discovery` | files by globs, and what could not be looked at |
| `beginnings`, `exclusion` | where reading begins, and what is left out |
| `files` | what is known of each followed file: its durable position, and what was last seen of it |
| `checkpoint` | the durable side of that, and the spool of unacknowledged ranges (SQLite) |
| `spooled_ranges`, `bodies` | that spool's rows, and the larger bodies, in a file beside it |
| `generations` | how often each file was truncated, for the day the checkpoint is lost |
| `installation` | host id, the lock of the state folder, and the refusal to start without a checkpoint |
| `rows` | what its rows say |
| `run_mark`, `log_check` | a write-ahead log that was lost, or damaged |
| `descriptors` | how many files are held open, and whose turn it is where there are more |
| `accounts` | what looks found, written down |
| `scanner`, `seen` | one look at everything: new, renamed, deleted and missing files |
| `pace`, `hints` | when all is looked at, and what is in between: what changed a moment ago, and what inotify names |
| `service_client` | the delivery service as seen from here: its clock, its rules, ranges and reports |
| `clock_floor` | the highest clock that was read, over restarts |
| `connections` | HTTP over connections that are kept open |
| `refused_lines` | which lines became dead letters, told at once |
| `rests` | looks for such rests, and finishes them |
| `marks` | the latest places up to which a file was read: a copy with less than that is known by them |
| `copies` | what copytruncate leaves beside a log |
| `compressing` | few ranges are in memory as lines |
| `flight` | several ranges of a file, sent one after another, their answers taken as they come |
| `follower` | one file's next step: examine, cut, spool, send, acknowledge |
| `forgotten` | up to where files were read that are gone, should they come back |
| `retirement` | the end of a file: deleted, replaced, missing, and what is lost with it |
| `schedule` | whose step is next, and who waits for a retry |
| `senders` | the threads that do these steps, and how long they wait after a failure |
| `pending` | how many bytes are pending |
| `reports`, `counters` | host reports, counters |
| `throttle` | conditions: each is told when it begins and when it has ended |
| `books` | what became of every byte of a source: the equation that must hold, kept by the checkpoint itself |
| `peek`, `standing` | the checkpoint, and what only the memory of a running tailer knows, as another process may see them |
| `status`, `status_text` | `hourmark tail status` |
| `spool` | standard input and syslog: what is received is on disk first, and followed there |
| `standstill`, `summary` | how long one pass waits for nothing, and what a run came to |
| `preflight` | whether a start would succeed: folders, addresses, certificates; for a reload and for `--check` |
| `tailer`, `cli` | all of it, running |
"""
