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
    int all = find(library, "rd_kafka_conf_interceptor_add_on_new", &found.conf_interceptor_add_on_new)
        && find(library, "rd_kafka_interceptor_add_on_acknowledgement", &found.interceptor_add_on_acknowledgement)
        && find(library, "rd_kafka_interceptor_add_on_destroy", &found.interceptor_add_on_destroy)
        && find(library, "rd_kafka_message_status", &found.message_status)
        && find(library, "rd_kafka_topic_new", &found.topic_new) && find(library, "rd_kafka_topic_destroy", &found.topic_destroy)
        && find(library, "rd_kafka_produce_batch", &found.produce_batch)
        && find(library, "rd_kafka_last_error", &found.last_error);
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
