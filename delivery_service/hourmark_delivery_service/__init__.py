"""The event delivery service: takes byte ranges and API events over HTTP, appends them to Kafka.
A request is acknowledged once all in-sync Kafka replicas have its records. Instances share no
state: any instance can serve any request.

- `cli`, `process/`: startup and shutdown, worker processes that share a port, host reports
- `limits/`: the HTTP server: limits on connections and headers, TLS
- `access/`: tokens, and what they cover
- `edge/`: HTTP endpoints, responses, probes, and the OpenAPI document
- `work/`: admission of requests, bodies, scheduling, deduplication, delivery to the queue
- `parsing/`: from bytes to Avro records, as a pure function
- `queue/`: the interface of the durable queue, and its implementation on Kafka
- `errors`, `metrics`: all error responses and all metrics
"""
