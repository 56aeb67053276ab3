/* A librdkafka consumer with assigned partitions. Its records are returned in runs, each from one partition. */
#ifndef HOURMARK_READER_H
#define HOURMARK_READER_H

#include "kafka_abi.h"

enum { WHY_BYTES = 512, RUN_BYTES_MAX = 1 << 30 };

struct reader {
    rd_kafka_t *rk;
    rd_kafka_queue_t *queue;
    int users;  /* active calls; both fields are changed only while holding Python's lock */
    int closed; /* no further call may begin; the last active call closes the consumer */
};

struct setting {
    const char *name, *value;
};

/* Records of one partition and one leader epoch with ascending offsets, which lie in `messages` from `first` on. No more bytes of keys or of values than RUN_BYTES_MAX,
 * unless there is one record alone. */
struct run {
    size_t first, count, key_bytes, value_bytes;
    int32_t epoch; /* KAFKA_NO_EPOCH if the broker or the library does not know it */
    int nulls; /* whether any record has a null key or value, as opposed to an empty one */
};

/* Create a consumer. Returns 0 on failure, with the reason in `why` (WHY_BYTES). */
int reader_open(struct reader *reader, const struct setting *settings, size_t count, char *why);
/* Leave the cluster. Must be called once. */
void reader_close(struct reader *reader);
/* Receive messages within a time limit. Returns their number or a negative librdkafka error. The caller returns each message. */
ptrdiff_t reader_take(struct reader *reader, rd_kafka_message_t **messages, size_t count, int timeout_ms);
void reader_give_back(rd_kafka_message_t **messages, size_t count);
/* Group messages without errors into runs, at most `count`. */
size_t reader_runs(rd_kafka_message_t *const *messages, size_t count, struct run *runs);
/* The end of the partition's log at the last fetch, negative if unknown. Sends no request. */
int64_t reader_high(struct reader *reader, const char *topic, int32_t partition);
/* librdkafka's error. */
int reader_assign(struct reader *reader, const rd_kafka_topic_partition_list_t *partitions);
void reader_leave(struct reader *reader, const rd_kafka_topic_partition_list_t *partitions);

#endif
