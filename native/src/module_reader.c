/* The reader as Python holds it: a capsule. Of each run of records Python gets what an Arrow column is made of. */
#include <stdlib.h>
#include <string.h>

#include "glue.h"
#include "reader.h"

enum { RECORDS_MAX = 1 << 20, RUN_ITEMS = 9, TOLD_ITEMS = 5, PAIR = 2, TRIPLE = 3, PLACE_ITEMS = 4, PARTITIONS_MAX = 1 << 24 };

static const char READER[] = "hourmark.reader";

static void destroy(PyObject *capsule)
{
    struct reader *reader = PyCapsule_GetPointer(capsule, READER);
    Py_BEGIN_ALLOW_THREADS
    reader_close(reader);
    Py_END_ALLOW_THREADS
    free(reader);
}

static struct reader *reader_of(PyObject *object)
{
    struct reader *reader = PyCapsule_GetPointer(object, READER);
    if (reader != NULL && (reader->closed || reader->rk == NULL)) {
        glue_wrong("the reader was closed");
        return NULL;
    }
    return reader;
}

/* Close it once no call uses it any more: librdkafka must not be destroyed below a thread that waits for records. */
static void close_if_unused(struct reader *reader)
{
    if (!reader->closed || reader->users > 0)
        return;
    reader->users++; /* no other thread closes it meanwhile */
    Py_BEGIN_ALLOW_THREADS
    reader_close(reader);
    Py_END_ALLOW_THREADS
    reader->users--;
}

static void leave_reader(struct reader *reader)
{
    reader->users--;
    close_if_unused(reader);
}

/* Settings, each a tuple of name and value; they end with a zero byte, as Python's bytes do. */
static int settings_of(PyObject *pairs, struct setting *settings, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *pair = PyTuple_GetItem(pairs, i);
        struct span name, value;
        if (pair == NULL || PyTuple_Size(pair) != PAIR || !glue_bytes(PyTuple_GetItem(pair, 0), &name)
            || !glue_bytes(PyTuple_GetItem(pair, 1), &value))
            return 0;
        settings[i] = (struct setting){(const char *)name.bytes, (const char *)value.bytes};
    }
    return 1;
}

PyObject *native_reader(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    char why[WHY_BYTES] = "";
    Py_ssize_t pairs;
    (void)self;
    if (count != 1 || (pairs = PyTuple_Size(args[0])) < 0)
        return count == 1 ? NULL : glue_wrong("reader(settings)");
    struct setting *settings = calloc((size_t)pairs + 1, sizeof *settings);
    struct reader *reader = calloc(1, sizeof *reader);
    int opened = 0;
    if (settings == NULL || reader == NULL)
        PyErr_NoMemory();
    else if (settings_of(args[0], settings, pairs) && !(opened = reader_open(reader, settings, (size_t)pairs, why)))
        glue_wrong(why);
    else if (!opened && PyErr_Occurred() == NULL)
        glue_wrong("settings are pairs");
    free(settings);
    if (!opened) {
        free(reader);
        return NULL;
    }
    PyObject *capsule = PyCapsule_New(reader, READER, destroy);
    if (capsule == NULL) {
        reader_close(reader);
        free(reader);
    }
    return capsule;
}

PyObject *native_close(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    if (count != 1)
        return glue_wrong("close(reader)");
    struct reader *reader = PyCapsule_GetPointer(args[0], READER);
    if (reader == NULL)
        return NULL;
    reader->closed = 1;
    close_if_unused(reader);
    Py_IncRef(Py_None);
    return Py_None;
}

/* A list of tuples of topic, partition, offset and leader epoch (below 0: none); NULL with a Python error. */
static rd_kafka_topic_partition_list_t *partitions_of(PyObject *given)
{
    Py_ssize_t count = PyTuple_Size(given);
    if (count < 0)
        return NULL; /* it is no tuple, and the error says so */
    if (count > PARTITIONS_MAX) {
        glue_wrong("too many partitions");
        return NULL;
    }
    rd_kafka_topic_partition_list_t *list = kafka_known()->list_new((int)count);
    if (list == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *place = PyTuple_GetItem(given, i);
        struct span topic;
        int64_t partition, offset, epoch;
        if (PyTuple_Size(place) != PLACE_ITEMS || !glue_bytes(PyTuple_GetItem(place, 0), &topic)
            || !glue_number(PyTuple_GetItem(place, 1), 0, INT32_MAX, &partition)
            || !glue_number(PyTuple_GetItem(place, 2), 0, INT64_MAX, &offset)
            || !glue_number(PyTuple_GetItem(place, 3), KAFKA_NO_EPOCH, INT32_MAX, &epoch)) {
            kafka_known()->list_destroy(list);
            return PyErr_Occurred() != NULL ? NULL : (glue_wrong("a partition is a topic, a number, an offset and a leader epoch"), NULL);
        }
        rd_kafka_topic_partition_t *made = kafka_known()->list_add(list, (const char *)topic.bytes, (int32_t)partition);
        made->offset = offset;
        if (epoch != KAFKA_NO_EPOCH)
            kafka_known()->set_leader_epoch(made, (int32_t)epoch);
    }
    return list;
}

static PyObject *with_partitions(PyObject *const *args, Py_ssize_t count, int leave)
{
    if (count != 2)
        return glue_wrong(leave ? "leave(reader, partitions)" : "assign(reader, partitions)");
    struct reader *reader = reader_of(args[0]);
    rd_kafka_topic_partition_list_t *list = reader == NULL ? NULL : partitions_of(args[1]);
    int code = KAFKA_OK;
    if (list == NULL)
        return NULL;
    reader->users++;
    Py_BEGIN_ALLOW_THREADS
    if (leave)
        reader_leave(reader, list);
    else
        code = reader_assign(reader, list);
    kafka_known()->list_destroy(list);
    Py_END_ALLOW_THREADS
    leave_reader(reader);
    return PyLong_FromLongLong(code);
}

PyObject *native_assign(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    return with_partitions(args, count, 0);
}

PyObject *native_leave(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    return with_partitions(args, count, 1);
}

/* What a column holds: bytes one after the other, and where each ends, after a zero. */
static void fill(const struct run *run, rd_kafka_message_t *const *messages, int of_keys, uint8_t *content, uint8_t *ends)
{
    int32_t end = 0;
    memcpy(ends, &end, sizeof end);
    for (size_t i = 0; i < run->count; i++) {
        const rd_kafka_message_t *message = messages[run->first + i];
        size_t size = of_keys ? message->key_len : message->len;
        if (size > 0)
            memcpy(content + end, of_keys ? message->key : message->payload, size);
        end += (int32_t)size;
        memcpy(ends + sizeof end * (i + 1), &end, sizeof end);
    }
}

/* (topic, partition, leader epoch, offsets, ends of keys, keys, ends of values, values, nulls) */
static PyObject *run_tuple(const struct run *run, rd_kafka_message_t *const *messages)
{
    const rd_kafka_message_t *first = messages[run->first];
    const char *topic = kafka_known()->topic_name(first->rkt);
    uint8_t *offsets = NULL, *key_ends = NULL, *keys = NULL, *value_ends = NULL, *values = NULL, *nulls = NULL;
    PyObject *items[] = {
        glue_new_bytes(topic, strlen(topic)),
        PyLong_FromLongLong(first->partition),
        PyLong_FromLongLong(run->epoch),
        glue_room(sizeof(int64_t) * run->count, &offsets),
        glue_room(sizeof(int32_t) * (run->count + 1), &key_ends),
        glue_room(run->key_bytes, &keys),
        glue_room(sizeof(int32_t) * (run->count + 1), &value_ends),
        glue_room(run->value_bytes, &values),
        glue_room(run->nulls ? run->count : 0, &nulls),
    };
    int whole = 1;
    for (int i = 0; i < RUN_ITEMS; i++)
        whole = whole && items[i] != NULL;
    if (whole) {
        fill(run, messages, 1, keys, key_ends);
        fill(run, messages, 0, values, value_ends);
        for (size_t i = 0; i < run->count; i++) {
            const rd_kafka_message_t *message = messages[run->first + i];
            memcpy(offsets + sizeof message->offset * i, &message->offset, sizeof message->offset);
            if (run->nulls)
                nulls[i] = (uint8_t)((message->key == NULL) | (message->payload == NULL) << 1);
        }
    }
    return glue_tuple(RUN_ITEMS, items);
}

/* (code, topic, partition, offset, text) */
static PyObject *told_tuple(const rd_kafka_message_t *message)
{
    const char *topic = message->rkt == NULL ? "" : kafka_known()->topic_name(message->rkt);
    PyObject *items[] = {
        PyLong_FromLongLong(message->err),
        glue_new_bytes(topic, strlen(topic)),
        PyLong_FromLongLong(message->rkt == NULL ? -1 : message->partition),
        PyLong_FromLongLong(message->offset),
        glue_new_bytes(message->payload, message->payload == NULL ? 0 : message->len),
    };
    return glue_tuple(TOLD_ITEMS, items);
}

PyObject *native_high(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    struct span topic;
    int64_t partition;
    (void)self;
    if (count != TRIPLE)
        return glue_wrong("high(reader, topic, partition)");
    struct reader *reader = reader_of(args[0]);
    if (reader == NULL || !glue_bytes(args[1], &topic) || !glue_number(args[2], 0, INT32_MAX, &partition))
        return NULL;
    return PyLong_FromLongLong(reader_high(reader, (const char *)topic.bytes, (int32_t)partition));
}

static int append(PyObject *list, PyObject *item)
{
    int done = item != NULL && PyList_Append(list, item) == 0;
    if (item != NULL)
        Py_DecRef(item);
    return done;
}

/* (runs, what else was told) */
static PyObject *taken(rd_kafka_message_t *const *messages, size_t count, struct run *runs)
{
    size_t found = reader_runs(messages, count, runs);
    PyObject *lists[] = {PyList_New(0), PyList_New(0)};
    int whole = lists[0] != NULL && lists[1] != NULL;
    for (size_t i = 0; whole && i < found; i++)
        whole = append(lists[0], run_tuple(&runs[i], messages));
    for (size_t i = 0; whole && i < count; i++)
        if (messages[i]->err != KAFKA_OK)
            whole = append(lists[1], told_tuple(messages[i]));
    PyObject *both = glue_tuple(PAIR, lists);
    if (!whole && both != NULL) {
        Py_DecRef(both);
        both = NULL;
    }
    return both;
}

PyObject *native_consume(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    int64_t wanted, timeout_ms;
    ptrdiff_t got;
    (void)self;
    if (count != TRIPLE)
        return glue_wrong("consume(reader, records, timeout_ms)");
    struct reader *reader = reader_of(args[0]);
    if (reader == NULL || !glue_number(args[1], 1, RECORDS_MAX, &wanted) || !glue_number(args[2], 0, INT32_MAX, &timeout_ms))
        return NULL;
    rd_kafka_message_t **messages = calloc((size_t)wanted, sizeof *messages);
    struct run *runs = calloc((size_t)wanted, sizeof *runs);
    PyObject *both = NULL;
    if (messages == NULL || runs == NULL) {
        PyErr_NoMemory();
    } else {
        reader->users++;
        Py_BEGIN_ALLOW_THREADS
        got = reader_take(reader, messages, (size_t)wanted, (int)timeout_ms);
        Py_END_ALLOW_THREADS
        both = got < 0 ? PyLong_FromLongLong(got) : taken(messages, (size_t)got, runs);
        if (got > 0)
            reader_give_back(messages, (size_t)got);
        leave_reader(reader);
    }
    free(messages);
    free(runs);
    return both;
}
