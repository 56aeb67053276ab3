"""The Event Delivery Service: takes byte ranges and API events over HTTP, acknowledges them once Kafka's replicas hold them.

A reader's path:

- `cli` → `server`, `http_protocol`: the running process
- `app` and the endpoints: `hourmark.wire` in HTTP terms; `answers`, `body`, `errors`
- `key_time`: the time that an idempotency key of a batch holds
- `service`: what may be accepted, and the order events → audit record → answer
- `parsing/`: bytes to Avro records, a pure function; begin at its docstring
- `queue`: the port to the durable queue; `kafka_queue` is Kafka, `memory_queue` is for tests
- `rules_store`, `rules_follower`, `framing`: what must be known before the first event
- `inflight`, `reporter`, `identity`: how far this instance's traffic is acknowledged, told to whoever closes hours
- `metrics`: all names in one place

Instances hold nothing that another lacks: any of them may take any request.
"""
