/* The part of librdkafka's C interface (rdkafka.h) that this module uses, declared here because a wheel brings the library alone.
 * The functions are those of the library that confluent_kafka has loaded, found by their names; all have been there since 2.1.
 */
#ifndef HOURMARK_KAFKA_ABI_H
#define HOURMARK_KAFKA_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_topic_partition_list_s rd_kafka_topic_partition_list_t;

typedef struct rd_kafka_message_s {
    int err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *_private;
} rd_kafka_message_t;

typedef struct rd_kafka_topic_partition_s {
    char *topic;
    int32_t partition;
    int64_t offset;
} rd_kafka_topic_partition_t; /* there is more, which is only read by librdkafka */

enum { KAFKA_CONSUMER = 1 };
enum { KAFKA_OK = 0, KAFKA_FATAL = -150, KAFKA_QUEUE_FULL = -184, KAFKA_INVALID = -186, KAFKA_ANY_PARTITION = -1, KAFKA_PERSISTED = 2 };

enum { KAFKA_NO_EPOCH = -1 };

typedef int kafka_on_new(rd_kafka_t *, const rd_kafka_conf_t *, void *opaque, char *why, size_t why_size);
typedef int kafka_on_message(rd_kafka_t *, rd_kafka_message_t *, void *opaque);
typedef int kafka_on_destroy(rd_kafka_t *, void *opaque);

struct kafka_functions {
    int (*conf_interceptor_add_on_new)(rd_kafka_conf_t *, const char *name, kafka_on_new *, void *opaque);
    int (*interceptor_add_on_acknowledgement)(rd_kafka_t *, const char *name, kafka_on_message *, void *opaque);
    int (*interceptor_add_on_destroy)(rd_kafka_t *, const char *name, kafka_on_destroy *, void *opaque);
    int (*message_status)(const rd_kafka_message_t *);
    rd_kafka_topic_t *(*topic_new)(rd_kafka_t *, const char *name, void *conf);
    void (*topic_destroy)(rd_kafka_topic_t *);
    int (*produce_batch)(rd_kafka_topic_t *, int32_t partition, int flags, rd_kafka_message_t *, int count);
    int (*last_error)(void);
    rd_kafka_conf_t *(*conf_new)(void);
    int (*conf_set)(rd_kafka_conf_t *, const char *name, const char *value, char *why, size_t why_size);
    void (*conf_destroy)(rd_kafka_conf_t *);
    rd_kafka_t *(*new_client)(int kind, rd_kafka_conf_t *, char *why, size_t why_size);
    void (*destroy)(rd_kafka_t *);
    int (*poll_set_consumer)(rd_kafka_t *);
    rd_kafka_queue_t *(*queue_get_consumer)(rd_kafka_t *);
    void (*queue_destroy)(rd_kafka_queue_t *);
    ptrdiff_t (*consume_batch_queue)(rd_kafka_queue_t *, int timeout_ms, rd_kafka_message_t **, size_t count);
    void (*message_destroy)(rd_kafka_message_t *);
    const char *(*topic_name)(const rd_kafka_topic_t *);
    rd_kafka_topic_partition_list_t *(*list_new)(int size);
    rd_kafka_topic_partition_t *(*list_add)(rd_kafka_topic_partition_list_t *, const char *topic, int32_t partition);
    void (*list_destroy)(rd_kafka_topic_partition_list_t *);
    int (*assign)(rd_kafka_t *, const rd_kafka_topic_partition_list_t *);
    void *(*incremental_unassign)(rd_kafka_t *, const rd_kafka_topic_partition_list_t *);
    void (*error_destroy)(void *);
    int32_t (*message_leader_epoch)(const rd_kafka_message_t *);
    void (*set_leader_epoch)(rd_kafka_topic_partition_t *, int32_t epoch);
    int (*watermarks)(rd_kafka_t *, const char *topic, int32_t partition, int64_t *low, int64_t *high);
    int (*consumer_close)(rd_kafka_t *);
};

/* Those of the library that the loaded file at `path` depends on; NULL if it is not loaded or lacks one. */
const struct kafka_functions *kafka_find(const char *path);
/* What `kafka_find` found last. */
const struct kafka_functions *kafka_known(void);

#endif
