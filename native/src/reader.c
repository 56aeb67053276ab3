#include "reader.h"

#include <stdio.h>

int reader_open(struct reader *reader, const struct setting *settings, size_t count, char *why)
{
    const struct kafka_functions *kafka = kafka_known();
    if (kafka == NULL) {
        snprintf(why, WHY_BYTES, "librdkafka was not found");
        return 0;
    }
    rd_kafka_conf_t *conf = kafka->conf_new();
    for (size_t i = 0; i < count; i++)
        if (kafka->conf_set(conf, settings[i].name, settings[i].value, why, WHY_BYTES) != 0) {
            kafka->conf_destroy(conf);
            return 0;
        }
    reader->rk = kafka->new_client(KAFKA_CONSUMER, conf, why, WHY_BYTES);
    if (reader->rk == NULL) {
        kafka->conf_destroy(conf); /* it owns it only where it succeeds */
        return 0;
    }
    kafka->poll_set_consumer(reader->rk);
    reader->queue = kafka->queue_get_consumer(reader->rk);
    return 1;
}

void reader_close(struct reader *reader)
{
    const struct kafka_functions *kafka = kafka_known();
    if (reader->rk == NULL)
        return;
    kafka->queue_destroy(reader->queue);
    kafka->consumer_close(reader->rk);
    kafka->destroy(reader->rk);
    reader->rk = NULL;
}

ptrdiff_t reader_take(struct reader *reader, rd_kafka_message_t **messages, size_t count, int timeout_ms)
{
    ptrdiff_t taken = kafka_known()->consume_batch_queue(reader->queue, timeout_ms, messages, count);
    return taken < 0 ? kafka_known()->last_error() : taken;
}

void reader_give_back(rd_kafka_message_t **messages, size_t count)
{
    for (size_t i = 0; i < count; i++)
        kafka_known()->message_destroy(messages[i]);
}

static int goes_on(const struct run *run, rd_kafka_message_t *const *messages, const rd_kafka_message_t *next, int32_t epoch)
{
    const rd_kafka_message_t *first = messages[run->first], *last = messages[run->first + run->count - 1];
    return first->rkt == next->rkt && first->partition == next->partition && last->offset < next->offset
        && run->epoch == epoch && run->key_bytes + next->key_len <= RUN_BYTES_MAX
        && run->value_bytes + next->len <= RUN_BYTES_MAX;
}

size_t reader_runs(rd_kafka_message_t *const *messages, size_t count, struct run *runs)
{
    size_t found = 0;
    int open = 0;
    for (size_t i = 0; i < count; i++) {
        const rd_kafka_message_t *message = messages[i];
        if (message->err != KAFKA_OK) {
            open = 0;
            continue;
        }
        int32_t epoch = kafka_known()->message_leader_epoch(message);
        if (!open || !goes_on(&runs[found - 1], messages, message, epoch))
            runs[found++] = (struct run){.first = i, .epoch = epoch};
        struct run *run = &runs[found - 1];
        run->count++;
        run->key_bytes += message->key_len;
        run->value_bytes += message->len;
        run->nulls |= message->key == NULL || message->payload == NULL;
        open = 1;
    }
    return found;
}

int64_t reader_high(struct reader *reader, const char *topic, int32_t partition)
{
    int64_t low = -1, high = -1;
    return kafka_known()->watermarks(reader->rk, topic, partition, &low, &high) == KAFKA_OK ? high : -1;
}

int reader_assign(struct reader *reader, const rd_kafka_topic_partition_list_t *partitions)
{
    return kafka_known()->assign(reader->rk, partitions);
}

void reader_leave(struct reader *reader, const rd_kafka_topic_partition_list_t *partitions)
{
    void *error = kafka_known()->incremental_unassign(reader->rk, partitions);
    if (error != NULL) /* it reads on, and nobody takes what it reads */
        kafka_known()->error_destroy(error);
}
