// Post events from standard input to Hourmark: one JSON object per line, with retries.
//
//     node post_events.mjs [--validate-only] URL TYPE < events.ndjson
//
// Needs Node.js 18 or later. The environment variable HOURMARK_TOKEN holds the token if the
// service requires one. HOURMARK_RETRY_SECONDS is the time after which a batch is given up
// (default 600).
//
// Exit codes:
//     0  every event was stored (or, with --validate-only, is valid)
//     1  every batch was processed, but some events were rejected: see standard error
//     2  a request was refused, or the arguments are wrong: a retry cannot succeed
//     3  a batch was given up after retries: it may or may not have been stored

import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

const BATCH_LINES_MAX = 500;
const BATCH_BYTES_MAX = 1_000_000; // the service accepts 1 MiB (service.range_bytes_max)
const RESPONSE_TIMEOUT_MS = 60_000; // longer than the service waits for Kafka
const BACKOFF_MS = 500;
const BACKOFF_MAX_MS = 30_000;
const RETRIED = new Set([408, 429, 500, 502, 503, 504]); // temporary; others are final
const LF = 0x0a;

/** The service refused the request. Nothing was stored, and a retry cannot succeed. */
class Refused extends Error {}

/** No attempt succeeded in time. */
class GaveUp extends Error {}

/** Return a new UUIDv7 (RFC 9562): 48 bits of Unix milliseconds, then random bits. */
function uuid7() {
  const bytes = randomBytes(16);
  bytes.writeUIntBE(Date.now(), 0, 6);
  bytes[6] = (bytes[6] & 0x0f) | 0x70; // version
  bytes[8] = (bytes[8] & 0x3f) | 0x80; // variant
  const hex = bytes.toString("hex");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

/**
 * Yield the lines of a stream as bytes, with their line feeds. `node:readline` is not used: it
 * also splits at U+2028, which JSON strings may contain, and replaces invalid UTF-8.
 */
async function* lines(stream) {
  let pending = [];
  for await (const chunk of stream) {
    let start = 0;
    for (let end = chunk.indexOf(LF); end !== -1; end = chunk.indexOf(LF, start)) {
      pending.push(chunk.subarray(start, end + 1));
      yield Buffer.concat(pending);
      pending = [];
      start = end + 1;
    }
    pending.push(chunk.subarray(start));
  }
  const last = Buffer.concat(pending);
  if (last.length) yield last;
}

/** Yield the lines in batches that the service accepts. A single line may be longer. */
async function* batches(stream) {
  let batch = [];
  let size = 0;
  for await (const line of lines(stream)) {
    if (batch.length && (batch.length === BATCH_LINES_MAX || size + line.length > BATCH_BYTES_MAX)) {
      yield batch;
      batch = [];
      size = 0;
    }
    batch.push(line);
    size += line.length;
  }
  if (batch.length) yield batch;
}

/** Post one batch until it is answered, and return the response. Throws Refused or GaveUp. */
async function postBatch(url, body, token, retryMs) {
  // One key for all attempts: it makes each retry the same batch, so that nothing is stored twice.
  const headers = { "Content-Type": "application/x-ndjson", "Idempotency-Key": uuid7() };
  if (token) headers.Authorization = `Bearer ${token}`;
  const giveUpAt = performance.now() + retryMs;
  for (let attempt = 0; ; attempt++) {
    let problem;
    let retryAfterMs = 0;
    try {
      const signal = AbortSignal.timeout(RESPONSE_TIMEOUT_MS);
      const response = await fetch(url, { method: "POST", headers, body, signal, redirect: "manual" });
      const text = await response.text();
      if (response.status === 200) return JSON.parse(text);
      problem = `${response.status} ${text.trim()}`;
      if (!RETRIED.has(response.status)) throw new Refused(problem);
      retryAfterMs = 1000 * (Number(response.headers.get("Retry-After")) || 0);
    } catch (error) {
      if (error instanceof Refused) throw error;
      // No complete response: the batch may have been stored.
      problem = `${error.message}${error.cause ? `: ${error.cause.message}` : ""}`;
    }
    const backoffMs = Math.min(BACKOFF_MAX_MS, BACKOFF_MS * 2 ** attempt);
    const delayMs = retryAfterMs + Math.random() * backoffMs; // jitter
    if (performance.now() + delayMs > giveUpAt) throw new GaveUp(problem);
    console.error(`retry in ${(delayMs / 1000).toFixed(1)} s: ${problem}`);
    await sleep(delayMs);
  }
}

async function main(args) {
  const validateOnly = args[0] === "--validate-only";
  if (args.length !== (validateOnly ? 3 : 2) || !/^https?:/.test(args.at(-2))) {
    console.error("usage: node post_events.mjs [--validate-only] URL TYPE < events.ndjson");
    return 2;
  }
  const [base, type] = args.slice(-2);
  const url = `${base.replace(/\/+$/, "")}/v1/events/${type}${validateOnly ? ":validate" : ""}`;
  const token = process.env.HOURMARK_TOKEN ?? "";
  const retryMs = 1000 * Number(process.env.HOURMARK_RETRY_SECONDS ?? 600);
  let first = 1; // number of the first line of the batch
  let accepted = 0;
  let rejected = 0;
  for await (const batch of batches(process.stdin)) {
    let response;
    try {
      response = await postBatch(url, Buffer.concat(batch), token, retryMs);
    } catch (error) {
      if (!(error instanceof Refused || error instanceof GaveUp)) throw error;
      const what = error instanceof Refused ? "refused" : "given up";
      console.error(`lines from ${first} on: ${what}: ${error.message}`);
      return error instanceof Refused ? 2 : 3;
    }
    accepted += response.events;
    rejected += response.dead_letters;
    for (const { index, reason, detail = "" } of response.rejected ?? []) {
      console.error(`line ${first + index}: ${reason}: ${detail}`);
    }
    first += batch.length;
  }
  console.log(`${accepted} events ${validateOnly ? "valid" : "stored"}, ${rejected} rejected`);
  return rejected ? 1 : 0;
}

process.exitCode = await main(process.argv.slice(2));
