"""Who may post what: bearer tokens, kept in the compacted topic `hourmark.tokens`.

    token    one token: what it is made of, what it covers          pure
    book     all tokens that this instance knows of                  fed by a thread, asked by requests
    rates    what a token may still send                             token buckets
    gate     401, 403 and 429                                        every request passes it
    topic    the topic: made, written, read                          Kafka
    cli      `hourmark token`

A token's secret is 256 random bits, shown once; the topic holds its SHA-256, which nobody can turn
round or guess, so a slow password hash would cost each request time and add nothing. What a service
has read it goes on with while Kafka is away. A revoked token stays in the topic as revoked, for
ever: a tombstone would be forgotten, and a copy of its record, restored by whatever accident, would
be valid again.
"""
