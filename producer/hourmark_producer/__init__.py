"""The File Tailer: ships log files from hosts to the delivery service as unparsed byte ranges.

Guarantees: files are identified by device, inode, birth time and content, not by name, so a renamed
or copied file is not sent twice. Bytes that a truncation destroyed before they were read are
counted as lost; where the number cannot be known, the tailer reports an unknown loss.

The globs of a source should match the live file and its names after a rotation by rename
(`app.log*`). A file that was created and rotated away while the tailer was down is then found under
its later name. If only the live name matches (`app.log`), a file that was scanned once is still
followed under any name in the same folder. Compressed files are not followed as logs, but their
content is read if it was compressed before the tailer read it. Copies that `copytruncate` creates
are recognized by name and content and are skipped; bytes written between copy and truncation are
lost by copytruncate itself.

Third-party packages: zstandard, and google-re2 for records of more than one line.

Packages, from the lowest layer to the highest:

| package or module | content |
|---|---|
| `counters`, `conditions` | losses and counters of a run; log messages that are not repeated |
| `files` | one file: identity, fingerprints, patterns, position, schedule |
| `cut` | where files are cut into ranges |
| `checkpoint` | the durable state in SQLite, and the spool of unacknowledged ranges |
| `history` | whether content was read before, under another name or in another file |
| `receive` | syslog, journal and standard input, spooled to disk first |
| `send` | HTTP connections, retries, ranges in flight, host reports |
| `watch` | scans: new, renamed, deleted and missing files |
| `report` | status, trace of a line, metrics, health |
| `tailer`, `cli` | the running tailer and its commands |
"""
