/* Records handed to a producer of librdkafka's without a Python object each, and counted as they are acknowledged.
 *
 * The producer is confluent_kafka's own: this module is one of its plugins (`plugin.library.paths`), learns of it as it is made,
 * and hears of each message that is acknowledged or failed (interceptors, rdkafka.h). Values are not copied: they must stay where
 * they are until their flight has landed. Messages of others are left to confluent_kafka; these are none of its business, as they
 * have no opaque.
 */
#ifndef HOURMARK_SENDER_H
#define HOURMARK_SENDER_H

#include "kafka_abi.h"
#include "syslog.h"

/* Records under way that were handed over in one go. What it holds for others is theirs to free. */
struct flight {
    struct flight *next;
    const uint8_t *start, *end; /* of the values: which message it is, tells where its value lies */
    int64_t left, failed;
    int code; /* of a failure; the fatal one, if there was one */
    int64_t told; /* of `failed` */
    void *values, *tell;
};

struct sender;

/* The producer made by this thread since it was asked last; NULL if none was, or it is not a plugin's. */
struct sender *sender_made(void);

struct cargo {
    struct span keys, values;
    const uint8_t *ends; /* of each value, 4 bytes in the processor's order */
    size_t at, until; /* which of the records */
    size_t key_size;
};

/* Make the flight of these records the sender's, before any is handed over. Whether it is: not where values at the same place are
 * under way, whoever sends them, as nobody could tell which record is acknowledged. Then send a copy.
 */
int sender_begin(struct sender *sender, const struct cargo *cargo, struct flight *flight);

/* Hand over the records of a flight that began. The index of the first for which there was no room, or `until`; `*code` is why another was refused.
 * The flight is the sender's from then on, unless none was taken: then `*flies` is 0.
 */
size_t sender_send(struct sender *sender, const char *topic, const struct cargo *cargo, struct flight *flight, int *flies, int *code);

/* The next flight with news since it was asked last: it has landed (`*landed`; it is the caller's then), or records failed. */
struct flight *sender_news(struct sender *sender, int *landed, int64_t *failed, int *code);

/* Nobody will send any more. */
void sender_leave(struct sender *sender);

#endif
