/* Sending of records with a librdkafka producer, without a Python object for each, and counting of acknowledgements.
 *
 * The producer is confluent_kafka's own: this module is one of its plugins (`plugin.library.paths`), is notified of its creation,
 * and receives each acknowledged or failed message (interceptors, rdkafka.h). Values are not copied: they must stay in place
 * until their flight is finished. Other messages are left to confluent_kafka, which ignores these, because they
 * have no opaque.
 */
#ifndef HOURMARK_SENDER_H
#define HOURMARK_SENDER_H

#include "kafka_abi.h"
#include "syslog.h"

/* Records in flight that one call enqueued. The caller frees its own fields. */
struct flight {
    struct flight *next;
    const uint8_t *start, *end; /* address range of the values, by which messages are identified */
    int64_t left, failed;
    int code; /* error code of a failure; that of a fatal error if there was one */
    int64_t told; /* of `failed` */
    void *values, *tell;
};

struct sender;

/* The producer that this thread created since the last call. NULL if there is none, or if it does not use this plugin. */
struct sender *sender_made(void);

struct cargo {
    struct span keys, values;
    const uint8_t *ends; /* end offset of each value, 4 bytes in native byte order */
    size_t at, until; /* index range of the records */
    size_t key_size;
};

/* Register the flight of these records before any is enqueued. Fails if values at the same address are
 * in flight with any sender, because acknowledgements would be ambiguous. The caller then sends a copy.
 */
int sender_begin(struct sender *sender, const struct cargo *cargo, struct flight *flight);

/* Enqueue the records of a registered flight. Returns the index of the first record without room, or `until`; `*code` is the error of a rejected one.
 * The sender then owns the flight, unless no record was enqueued: `*flies` is 0.
 */
size_t sender_send(struct sender *sender, const char *topic, const struct cargo *cargo, struct flight *flight, int *flies, int *code);

/* The next flight with progress since the last call: it has finished (`*landed`; the caller then owns it), or records failed. */
struct flight *sender_news(struct sender *sender, int *landed, int64_t *failed, int *code);

/* Close the sender; no call may send afterwards. */
void sender_leave(struct sender *sender);

#endif
