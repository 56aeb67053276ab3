"""Access control: bearer tokens, stored in the compacted topic `hourmark.tokens`.

    token         one token: its fields and what it covers; pure
    token_store   all tokens that this instance has read; written by one thread, read by requests
    rate_limits   rate limits of a token
    grants        authentication and authorization of a request: 401, 403 and 429
    topic         creating, writing and reading the topic in Kafka
    cli           `hourmark token`

A token's secret has 256 random bits and is shown once. The topic holds only its SHA-256 digest. A
slow password hash would not make a random secret safer, but would cost time in each request. While
Kafka is unavailable, a service keeps using the tokens it has read. A revoked token stays in the
topic as revoked, permanently: after a tombstone, a restored copy of its record would be valid.
"""
