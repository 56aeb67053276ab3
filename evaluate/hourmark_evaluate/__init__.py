"""`hourmark evaluate`: what Kafka does today in the trials that made others give it up, as figures
that anyone can repeat.

    trials/*  one story each, on clusters that somebody has  →  results.Trial  →  verdicts  →  page (HTML), markdown, JSON

A reader's path: `results` (what a trial leaves) → `verdicts` (what follows from it) → `accounting`
(sent against read back), all pure; `load`, `reading`, `brokers` (the edges) → `hands` (what may be
done to servers) → `stage` (one trial's course) → `trials` → `run` → `cli`. What is shown: `wording`
→ `page`, `plots`, `markdown`, `peers`, pure too.

Judged from outside: each record carries its own number; what was acknowledged is held against what
an ordinary consumer reads back. Nothing that a server says of itself counts, but where it is held
against what was counted here.
"""
