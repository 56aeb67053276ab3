#include "sender.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGES = 256 };

static const char NAME[] = "hourmark";

struct sender {
    pthread_mutex_t guard; /* of all below */
    rd_kafka_t *rk; /* NULL once it is destroyed */
    struct flight *flights; /* the one that was acknowledged last comes first */
    int left; /* whether nobody sends any more */
};

static _Thread_local struct sender *made; /* by this thread */
static _Thread_local int handing_over; /* whether this thread is within produce_batch: its failures are told by the call */

struct sender *sender_made(void)
{
    struct sender *found = made;
    made = NULL;
    return found;
}

static void count(struct sender *sender, const uint8_t *value, int code)
{
    struct flight **place = &sender->flights, *flight = *place;
    while (flight != NULL && !(value >= flight->start && value < flight->end)) {
        place = &flight->next;
        flight = *place;
    }
    if (flight == NULL)
        return; /* one of confluent_kafka's own messages */
    *place = flight->next;
    flight->next = sender->flights;
    sender->flights = flight;
    flight->left--;
    if (code != KAFKA_OK) {
        flight->failed++;
        flight->code = flight->code == KAFKA_FATAL ? KAFKA_FATAL : code;
    }
}

/* In a thread of librdkafka's. A message is on all in-sync replicas, or it says why not. */
static int on_acknowledgement(rd_kafka_t *rk, rd_kafka_message_t *message, void *opaque)
{
    struct sender *sender = opaque;
    (void)rk;
    if (handing_over || message->payload == NULL)
        return KAFKA_OK;
    int code = message->err;
    if (code == KAFKA_OK && kafka_known()->message_status(message) != KAFKA_PERSISTED)
        code = KAFKA_INVALID;
    pthread_mutex_lock(&sender->guard);
    count(sender, message->payload, code);
    pthread_mutex_unlock(&sender->guard);
    return KAFKA_OK;
}

static void end_if_over(struct sender *sender)
{
    int over = sender->left && sender->rk == NULL;
    pthread_mutex_unlock(&sender->guard);
    if (over) { /* flights that never landed are not freed: their values are Python's, which may be gone */
        pthread_mutex_destroy(&sender->guard);
        free(sender);
    }
}

static int on_destroy(rd_kafka_t *rk, void *opaque)
{
    struct sender *sender = opaque;
    (void)rk;
    if (made == sender)
        made = NULL;
    pthread_mutex_lock(&sender->guard);
    sender->rk = NULL;
    end_if_over(sender);
    return KAFKA_OK;
}

static int on_new(rd_kafka_t *rk, const rd_kafka_conf_t *conf, void *opaque, char *why, size_t why_size)
{
    (void)conf, (void)opaque, (void)why, (void)why_size;
    struct sender *sender = calloc(1, sizeof *sender);
    if (sender == NULL)
        return KAFKA_OK; /* it is one without a sender */
    sender->rk = rk;
    if (pthread_mutex_init(&sender->guard, NULL) != 0
        || kafka_known()->interceptor_add_on_acknowledgement(rk, NAME, on_acknowledgement, sender) != KAFKA_OK) {
        free(sender);
        return KAFKA_OK;
    }
    if (kafka_known()->interceptor_add_on_destroy(rk, NAME, on_destroy, sender) == KAFKA_OK)
        made = sender;
    return KAFKA_OK;
}

/* librdkafka calls it for each configuration that names this module as a plugin. */
__attribute__((visibility("default"))) int conf_init(rd_kafka_conf_t *conf, void **opaque, char *why, size_t why_size)
{
    (void)opaque, (void)why, (void)why_size;
    return kafka_known() == NULL ? KAFKA_OK : kafka_known()->conf_interceptor_add_on_new(conf, NAME, on_new, NULL);
}

static size_t end_of(const struct cargo *cargo, size_t record)
{
    uint32_t end;
    if (record == 0)
        return 0;
    memcpy(&end, cargo->ends + 4 * (record - 1), sizeof end);
    return end;
}

/* Up to MESSAGES records from `at` on: how many there was room for. Others that were refused are counted. */
static size_t hand_over(rd_kafka_topic_t *topic, const struct cargo *cargo, size_t at, size_t *refused, int *code)
{
    rd_kafka_message_t messages[MESSAGES];
    size_t count = cargo->until - at < MESSAGES ? cargo->until - at : MESSAGES;
    memset(messages, 0, count * sizeof *messages);
    for (size_t i = 0; i < count; i++) {
        size_t start = end_of(cargo, at + i);
        messages[i].payload = (void *)(uintptr_t)(cargo->values.bytes + start);
        messages[i].len = end_of(cargo, at + i + 1) - start;
        messages[i].key = (void *)(uintptr_t)(cargo->keys.bytes + cargo->key_size * (at + i));
        messages[i].key_len = cargo->key_size;
    }
    handing_over = 1;
    kafka_known()->produce_batch(topic, KAFKA_ANY_PARTITION, 0, messages, (int)count);
    handing_over = 0;
    for (size_t i = 0; i < count; i++) {
        if (messages[i].err == KAFKA_QUEUE_FULL)
            return i; /* as are all after it */
        if (messages[i].err != KAFKA_OK) {
            ++*refused;
            *code = *code == KAFKA_FATAL ? KAFKA_FATAL : messages[i].err;
        }
    }
    return count;
}

int sender_begin(struct sender *sender, const struct cargo *cargo, struct flight *flight)
{
    int apart = 1;
    flight->start = cargo->values.bytes + end_of(cargo, cargo->at);
    flight->end = cargo->values.bytes + end_of(cargo, cargo->until);
    flight->left = (int64_t)(cargo->until - cargo->at) + 1; /* it cannot land before all was handed over */
    pthread_mutex_lock(&sender->guard);
    for (struct flight *other = sender->flights; other != NULL && apart; other = other->next)
        apart = other->start >= flight->end || flight->start >= other->end;
    if (apart) {
        flight->next = sender->flights;
        sender->flights = flight;
    }
    pthread_mutex_unlock(&sender->guard);
    return apart;
}

/* Within the guard. */
static void forget(struct sender *sender, const struct flight *flight)
{
    for (struct flight **place = &sender->flights; *place != NULL; place = &(*place)->next)
        if (*place == flight) {
            *place = flight->next;
            return;
        }
}

size_t sender_send(struct sender *sender, const char *topic, const struct cargo *cargo, struct flight *flight, int *flies, int *code)
{
    size_t at = cargo->at, refused = 0;
    *code = KAFKA_OK;
    *flies = 0;
    pthread_mutex_lock(&sender->guard);
    rd_kafka_t *rk = sender->rk;
    pthread_mutex_unlock(&sender->guard);
    rd_kafka_topic_t *opened = rk == NULL ? NULL : kafka_known()->topic_new(rk, topic, NULL);
    if (opened == NULL) {
        *code = rk == NULL ? KAFKA_INVALID : kafka_known()->last_error();
        pthread_mutex_lock(&sender->guard);
        forget(sender, flight);
        pthread_mutex_unlock(&sender->guard);
        return at;
    }
    while (at < cargo->until && *code == KAFKA_OK) {
        size_t taken = hand_over(opened, cargo, at, &refused, code);
        at += taken;
        if (taken < MESSAGES)
            break;
    }
    kafka_known()->topic_destroy(opened);
    pthread_mutex_lock(&sender->guard);
    flight->left -= (int64_t)(cargo->until - at + refused) + 1;
    flight->end = cargo->values.bytes + end_of(cargo, at);
    *flies = at - cargo->at > refused; /* else it has nothing under way, and nobody counts on it */
    if (!*flies)
        forget(sender, flight);
    pthread_mutex_unlock(&sender->guard);
    return at;
}

struct flight *sender_news(struct sender *sender, int *landed, int64_t *failed, int *code)
{
    struct flight *found = NULL;
    pthread_mutex_lock(&sender->guard);
    for (struct flight **place = &sender->flights; *place != NULL; place = &(*place)->next) {
        struct flight *flight = *place;
        if (flight->left != 0 && flight->failed == flight->told)
            continue;
        found = flight;
        *landed = flight->left == 0;
        *failed = flight->failed - flight->told;
        *code = flight->code;
        flight->told = flight->failed;
        if (*landed)
            *place = flight->next;
        break;
    }
    pthread_mutex_unlock(&sender->guard);
    return found;
}

void sender_leave(struct sender *sender)
{
    pthread_mutex_lock(&sender->guard);
    sender->left = 1;
    end_if_over(sender);
}
