"""The Event Delivery Service: takes byte ranges and API events over HTTP, acknowledges them once
Kafka's replicas hold them.

A reader's path:

- `cli` → `server`: the running process, and `parts`, what it starts; `http_protocol`,
  `connections`: what a connection may cost
- `supervisor`, `worker`, `claims`: several processes that share a port, and are one service to the
  rest
- `access/`, `tls`: who may send what, and how it is kept from others
- `app` and the endpoints: `hourmark.records.wire` in HTTP terms; `answers`, `body`, `errors`
- `key_time`: the time that an idempotency key of a batch holds
- `service`: what may be accepted, and the order events → audit record → answer
- `workers`, `turns`, `twins`, `peer`: where work runs, whose turn it is; the same is done once, and
  only for whom still waits
- `parsing/`: bytes to Avro records, a pure function; begin at its docstring
- `queue`: the port to the durable queue; `kafka_queue` is Kafka, on `running_producer`, `pacing`;
  tests have one in memory
- `rules_store`, `store_follower`, `framing`: what must be known before the first event
- `openapi`: the interface as a document
- `inflight`, `reporter`, `identity`: how far this instance's traffic is acknowledged, told to
  whoever closes hours
- `metrics`: all names in one place

Instances hold nothing that another lacks: any of them may take any request.
"""
