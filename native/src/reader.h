/* A consumer of librdkafka's that was given its partitions, and its records as they are told: by run, each of one partition. */
#ifndef HOURMARK_READER_H
#define HOURMARK_READER_H

#include "kafka_abi.h"

enum { WHY_BYTES = 512, RUN_BYTES_MAX = 1 << 30 };

struct reader {
    rd_kafka_t *rk;
    rd_kafka_queue_t *queue;
    int users;  /* calls under way; both are changed only by who holds Python's lock */
    int closed; /* no further call begins: the last of those under way closes it */
};

struct setting {
    const char *name, *value;
};

/* Records of one partition and one leader epoch with ascending offsets, which lie in `messages` from `first` on. No more bytes of keys or of values than RUN_BYTES_MAX,
 * unless there is one record alone. */
struct run {
    size_t first, count, key_bytes, value_bytes;
    int32_t epoch; /* KAFKA_NO_EPOCH: the broker or the library does not know it */
    int nulls; /* whether any has no key or no value, which is not the same as one of no bytes */
};

/* Whether there is one; else `why` (WHY_BYTES) says why not. */
int reader_open(struct reader *reader, const struct setting *settings, size_t count, char *why);
/* Leave the cluster; once. */
void reader_close(struct reader *reader);
/* How many of `messages` were taken, within the time; below 0: librdkafka's error. Each is to be given back. */
ptrdiff_t reader_take(struct reader *reader, rd_kafka_message_t **messages, size_t count, int timeout_ms);
void reader_give_back(rd_kafka_message_t **messages, size_t count);
/* The runs of records among these, errors left out; at most `count` of them. */
size_t reader_runs(rd_kafka_message_t *const *messages, size_t count, struct run *runs);
/* The end of the partition's log as of the last fetch; below 0: unknown. Does not ask the broker. */
int64_t reader_high(struct reader *reader, const char *topic, int32_t partition);
/* librdkafka's error. */
int reader_assign(struct reader *reader, const rd_kafka_topic_partition_list_t *partitions);
void reader_leave(struct reader *reader, const rd_kafka_topic_partition_list_t *partitions);

#endif
