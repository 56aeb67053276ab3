import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ThreadLocalRandom;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Post events from standard input to Hourmark: one JSON object per line, with retries.
 *
 * <pre>java PostEvents.java [--validate-only] URL TYPE &lt; events.ndjson</pre>
 *
 * <p>Needs Java 17 or later and no library. The environment variable HOURMARK_TOKEN holds the token
 * if the service requires one. HOURMARK_RETRY_SECONDS is the time after which a batch is given up
 * (default 600).
 *
 * <p>Exit codes:
 *
 * <ul>
 *   <li>0: every event was stored (or, with --validate-only, is valid)
 *   <li>1: every batch was processed, but some events were rejected: see standard error
 *   <li>2: a request was refused, or the arguments are wrong: a retry cannot succeed
 *   <li>3: a batch was given up after retries: it may or may not have been stored
 * </ul>
 */
public final class PostEvents {
    private static final int BATCH_LINES_MAX = 500;
    private static final int BATCH_BYTES_MAX = 1_000_000; // the service accepts 1 MiB
    private static final Duration RESPONSE_TIMEOUT =
            Duration.ofSeconds(60); // longer than the service waits for Kafka
    private static final double BACKOFF_S = 0.5;
    private static final double BACKOFF_MAX_S = 30;
    private static final Set<Integer> RETRIED =
            Set.of(408, 429, 500, 502, 503, 504); // temporary; every other status is final
    private static final SecureRandom RANDOM = new SecureRandom();

    /** The service refused the request. Nothing was stored, and a retry cannot succeed. */
    private static final class Refused extends Exception {
        Refused(String problem) {
            super(problem);
        }
    }

    /** No attempt succeeded in time. */
    private static final class GaveUp extends Exception {
        GaveUp(String problem) {
            super(problem);
        }
    }

    private final HttpClient client = // it follows no redirects
            HttpClient.newBuilder()
                    .version(HttpClient.Version.HTTP_1_1)
                    .connectTimeout(RESPONSE_TIMEOUT)
                    .build();
    private final URI uri;
    private final String token;
    private final double retrySeconds;
    private int nextLine = 1;
    private long accepted;
    private long rejected;

    private PostEvents(URI uri, String token, double retrySeconds) {
        this.uri = uri;
        this.token = token;
        this.retrySeconds = retrySeconds;
    }

    /** Return a new UUIDv7 (RFC 9562): 48 bits of Unix milliseconds, then random bits. */
    private static UUID uuid7() {
        long high = System.currentTimeMillis() << 16 | 0x7000 | RANDOM.nextInt(1 << 12);
        long low = RANDOM.nextLong() >>> 2 | 1L << 63;
        return new UUID(high, low);
    }

    /** Return the next line as bytes, with its line feed. Empty at the end. */
    private static byte[] readLine(InputStream input) throws IOException {
        ByteArrayOutputStream line = new ByteArrayOutputStream();
        for (int next = input.read(); next != -1; next = input.read()) {
            line.write(next);
            if (next == '\n') {
                break;
            }
        }
        return line.toByteArray();
    }

    /** Post all lines in batches that the service accepts. A single line may be longer. */
    private void postAll(InputStream input) throws Exception {
        List<byte[]> batch = new ArrayList<>();
        int size = 0;
        for (byte[] line = readLine(input); line.length > 0; line = readLine(input)) {
            boolean full = batch.size() == BATCH_LINES_MAX || size + line.length > BATCH_BYTES_MAX;
            if (full && !batch.isEmpty()) {
                post(batch);
                batch.clear();
                size = 0;
            }
            batch.add(line);
            size += line.length;
        }
        if (!batch.isEmpty()) {
            post(batch);
        }
    }

    private void post(List<byte[]> batch) throws Exception {
        ByteArrayOutputStream body = new ByteArrayOutputStream();
        batch.forEach(body::writeBytes);
        String response = postUntilAnswered(body.toByteArray());
        accepted += numbers(response, "events").get(0);
        long rejectedHere = numbers(response, "dead_letters").get(0);
        rejected += rejectedHere;
        if (rejectedHere > 0) {
            List<Long> lines = numbers(response, "index");
            lines.replaceAll(index -> nextLine + index);
            System.err.println("rejected lines " + lines + ": " + response);
        }
        nextLine += batch.size();
    }

    /** Post one batch until it is answered, and return the response. */
    private String postUntilAnswered(byte[] body) throws Refused, GaveUp, InterruptedException {
        // One key for all attempts: it makes each retry the same batch, so nothing is stored twice.
        HttpRequest.Builder builder =
                HttpRequest.newBuilder(uri)
                        .timeout(RESPONSE_TIMEOUT)
                        .header("Content-Type", "application/x-ndjson")
                        .header("Idempotency-Key", uuid7().toString())
                        .POST(HttpRequest.BodyPublishers.ofByteArray(body));
        if (!token.isEmpty()) {
            builder.header("Authorization", "Bearer " + token);
        }
        HttpRequest request = builder.build();
        long giveUpAt = System.nanoTime() + (long) (retrySeconds * 1e9);
        for (int attempt = 0; ; attempt++) {
            String problem;
            double retryAfterSeconds = 0;
            try {
                HttpResponse<String> response =
                        client.send(request, HttpResponse.BodyHandlers.ofString());
                String text = response.body().strip();
                if (response.statusCode() == 200 && !numbers(text, "dead_letters").isEmpty()) {
                    return text;
                }
                problem = response.statusCode() + " " + text;
                if (response.statusCode() != 200 && !RETRIED.contains(response.statusCode())) {
                    throw new Refused(problem);
                }
                String header = response.headers().firstValue("Retry-After").orElse("");
                retryAfterSeconds = header.matches("[0-9]{1,9}") ? Integer.parseInt(header) : 0;
            } catch (IOException error) {
                problem = error.toString(); // no complete response: the batch may have been stored
            }
            double backoff = Math.min(BACKOFF_MAX_S, BACKOFF_S * Math.pow(2, attempt));
            double delay =
                    retryAfterSeconds + backoff * ThreadLocalRandom.current().nextDouble(); // jitter
            if (System.nanoTime() + (long) (delay * 1e9) - giveUpAt > 0) {
                throw new GaveUp(problem);
            }
            System.err.printf("retry in %.1f s: %s%n", delay, problem);
            Thread.sleep((long) (delay * 1000));
        }
    }

    /**
     * Return all numbers that a JSON text has under a name. Java has no JSON parser of its own; with
     * a library, parse the response instead. Text in a JSON string cannot match: its quotes are
     * escaped.
     */
    private static List<Long> numbers(String json, String name) {
        Matcher matcher = Pattern.compile("\"" + name + "\"\\s*:\\s*([0-9]+)").matcher(json);
        List<Long> found = new ArrayList<>();
        while (matcher.find()) {
            found.add(Long.parseLong(matcher.group(1)));
        }
        return found;
    }

    private static int run(String[] args) throws Exception {
        boolean validateOnly = args.length > 0 && args[0].equals("--validate-only");
        if (args.length != (validateOnly ? 3 : 2) || !args[args.length - 2].matches("https?:.*")) {
            System.err.println(
                    "usage: java PostEvents.java [--validate-only] URL TYPE < events.ndjson");
            return 2;
        }
        String base = args[args.length - 2].replaceFirst("/+$", "");
        String path = "/v1/events/" + args[args.length - 1] + (validateOnly ? ":validate" : "");
        String token = System.getenv().getOrDefault("HOURMARK_TOKEN", "");
        String retrySeconds = System.getenv().getOrDefault("HOURMARK_RETRY_SECONDS", "600");
        PostEvents poster =
                new PostEvents(URI.create(base + path), token, Double.parseDouble(retrySeconds));
        try {
            poster.postAll(new BufferedInputStream(System.in));
        } catch (Refused | GaveUp error) {
            String what = error instanceof Refused ? "refused" : "given up";
            System.err.println(
                    "lines from " + poster.nextLine + " on: " + what + ": " + error.getMessage());
            return error instanceof Refused ? 2 : 3;
        }
        System.out.println(
                poster.accepted
                        + (validateOnly ? " events valid, " : " events stored, ")
                        + poster.rejected
                        + " rejected");
        return poster.rejected > 0 ? 1 : 0;
    }

    public static void main(String[] args) throws Exception {
        System.exit(run(args));
    }
}
