"""`hourmark demo`: runs the whole pipeline on its own stack and ends with the judge's result.

- `demo`: the steps of a run, and the broker kill
- `log_lines`, `traffic`: lines to write, and the log files that grow and are rotated
- `configuration`: event types, sources and settings of the components
- `bucket_progress`: which buckets are closed
- `verdict`, `outcome`: the judge's input and the result of the run
"""
