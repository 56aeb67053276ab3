"""`hourmark demo`: the whole path on a stack of its own, with a judge at the end who trusts nobody.

The story is `demo`; what it is made of:

- traffic: `rendering` (RFC 5424 lines), `named_lines`, `events`, `live_log` (files that
  grow and are rotated), `traffic` (the thread that writes them)
- what runs: `declarations` (types and sources), `settings` (hourmark.toml), `components` (tailer,
  service, ETL as processes), `leader_kill`
- what is shown: `closing` (which buckets are closed), `verdict` (the judge, asked until nothing is
  on its way), `outcome`
"""
