"""The judge: compares source files with closed buckets and dead letters, and shares no code with
what made either.

It imports nothing of Hourmark's other rooms. What it knows of identity, bucket layout and manifest
is its own reading of the design, so that a mistake made once is not made again by the one who looks
for it.

A reader's path: `expectations` (what it is told) → `sources`, `records`, `containers` (the lines of
source files, and records of several) → `rfc5424`, `values`, `declared`, `lines` (what a line must
have become) → `webhdfs`, `marker`, `buckets` (what is in HDFS) → `identity`, `matching` (events
against lines) → `markers` (markers against their buckets, themselves and one another) → `check`
(all of it) → `report`, `snapshot`, `cli`.

Memory: per source line 13 bytes (where it starts, where it was found, its type), per event 16 bytes
(its id). Lines are read again from the source file when an event claims them; no line is kept.
"""
