#define _GNU_SOURCE /* RTLD_NOLOAD */
#include "kafka_abi.h"

#include <dlfcn.h>
#include <string.h>

static struct kafka_functions known;
static int is_known;

static int find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

const struct kafka_functions *kafka_find(const char *path)
{
    struct kafka_functions found;
    void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD); /* it stays open, as the module that confluent_kafka is does */
    if (library == NULL)
        return NULL;
    const struct {
        const char *name;
        void *function;
    } wanted[] = {
        {"rd_kafka_conf_interceptor_add_on_new", &found.conf_interceptor_add_on_new},
        {"rd_kafka_interceptor_add_on_acknowledgement", &found.interceptor_add_on_acknowledgement},
        {"rd_kafka_interceptor_add_on_destroy", &found.interceptor_add_on_destroy},
        {"rd_kafka_message_status", &found.message_status},
        {"rd_kafka_topic_new", &found.topic_new},
        {"rd_kafka_topic_destroy", &found.topic_destroy},
        {"rd_kafka_produce_batch", &found.produce_batch},
        {"rd_kafka_last_error", &found.last_error},
        {"rd_kafka_conf_new", &found.conf_new},
        {"rd_kafka_conf_set", &found.conf_set},
        {"rd_kafka_conf_destroy", &found.conf_destroy},
        {"rd_kafka_new", &found.new_client},
        {"rd_kafka_destroy", &found.destroy},
        {"rd_kafka_poll_set_consumer", &found.poll_set_consumer},
        {"rd_kafka_queue_get_consumer", &found.queue_get_consumer},
        {"rd_kafka_queue_destroy", &found.queue_destroy},
        {"rd_kafka_consume_batch_queue", &found.consume_batch_queue},
        {"rd_kafka_message_destroy", &found.message_destroy},
        {"rd_kafka_topic_name", &found.topic_name},
        {"rd_kafka_topic_partition_list_new", &found.list_new},
        {"rd_kafka_topic_partition_list_add", &found.list_add},
        {"rd_kafka_topic_partition_list_destroy", &found.list_destroy},
        {"rd_kafka_assign", &found.assign},
        {"rd_kafka_incremental_unassign", &found.incremental_unassign},
        {"rd_kafka_error_destroy", &found.error_destroy},
        {"rd_kafka_message_leader_epoch", &found.message_leader_epoch},
        {"rd_kafka_topic_partition_set_leader_epoch", &found.set_leader_epoch},
        {"rd_kafka_get_watermark_offsets", &found.watermarks},
        {"rd_kafka_consumer_close", &found.consumer_close},
    };
    int all = 1;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        all = find(library, wanted[i].name, wanted[i].function) && all;
    if (!all)
        return NULL;
    known = found;
    is_known = 1;
    return &known;
}

const struct kafka_functions *kafka_known(void)
{
    return is_known ? &known : NULL;
}
