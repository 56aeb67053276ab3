"""What all rooms share: the contracts of Hourmark as pure code, the configuration, the clock and
the command line.

A reader's path, one module an idea:

- identity: `event_id` (16 bytes, made once), `ranges` (byte ranges of files), `record_key` (the
  Kafka key)
- types: `event_types` (a type's file), `rules` (a revision of all types and sources), `avro`
  (schemas of what is sent), `datum`
- time and place: `clock`, `hours` (buckets), `topics` (names), `manifest` (`_SUCCESS`)
- what is promised and reported: `audit`, `host_reports`, `dead_letters`
- edges: `config` (one typed tree), `cli` (finds each room's commands lazily), `durable` (files that
  survive a crash), `allocator` (memory that threads share)

Nothing here imports a room (`producer`, `delivery_service`, `mirror`, `etl`, `infra`); a test keeps
it so.
"""
