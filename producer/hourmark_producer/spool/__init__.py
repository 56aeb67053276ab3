"""What is received goes to disk first: standard input, syslog over sockets, whose senders cannot be asked again; and the journal.

Each source has a folder of *segments*, files that are only appended to, line by line. The tailer follows them as it follows every
log, so that a line's id comes from where it stands, and it is exactly once from the disk on. A segment is removed when it is
complete and all of it is acknowledged. A range is cut of synced bytes only: after a power cut no position lies behind what is
left of its segment.

| module | holds |
|---|---|
| `inputs` | what `input` of a source says (pure), and whether it may be so |
| `messages`, `framing` | a message as a line, a stream of bytes as messages (pure) |
| `segments` | the files of one source: appended to, rotated, removed |
| `recovery` | what a kill left of them, before they are followed |
| `losses` | what was received, or came in vain, and is not on disk |
| `receiver` | the thread of one source: waits for bytes, writes them, holds its senders while there is no room |
| `standard_input`, `streams`, `datagrams` | what it receives |
| `journal`, `journal_entry` | systemd's journal, which can be asked again; an entry as a line (pure) |
| `tls` | certificates of streams |
| `spools` | those of all sources of a tailer |
"""
