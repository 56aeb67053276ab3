/* The sender as Python holds it: a capsule. Flights own a reference to their values, and to whom they tell their news. */
#include <stdlib.h>
#include <string.h>

#include "glue.h"
#include "sender.h"

enum { END_BYTES = 4, KEY_BYTES = 24, SEND_ITEMS = 8, NEWS_ITEMS = 4 };

static const char SENDER[] = "hourmark.sender";

PyObject *native_kafka(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    struct span path;
    (void)self;
    if (count != 1)
        return glue_wrong("kafka(path)");
    return glue_bytes(args[0], &path) ? PyLong_FromLongLong(kafka_find((const char *)path.bytes) != NULL) : NULL;
}

static void leave(PyObject *capsule)
{
    sender_leave(PyCapsule_GetPointer(capsule, SENDER));
}

PyObject *native_sender(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self, (void)args;
    if (count != 0)
        return glue_wrong("sender()");
    struct sender *sender = sender_made();
    if (sender == NULL) {
        Py_IncRef(Py_None);
        return Py_None;
    }
    PyObject *capsule = PyCapsule_New(sender, SENDER, leave);
    if (capsule == NULL)
        sender_leave(sender);
    return capsule;
}

/* Whether each value has bytes, and all of them are there. */
static int is_whole(const struct cargo *cargo, struct span ends)
{
    size_t records = ends.size / END_BYTES;
    uint32_t end, last = 0;
    if (ends.size != END_BYTES * records || cargo->keys.size != KEY_BYTES * records || cargo->until > records)
        return 0;
    for (size_t i = 0; i < records; i++, last = end) {
        memcpy(&end, ends.bytes + END_BYTES * i, END_BYTES);
        if (end <= last)
            return 0;
    }
    return last == cargo->values.size && cargo->at < cargo->until;
}

static void flight_end(struct flight *flight)
{
    Py_DecRef(flight->values);
    Py_DecRef(flight->tell);
    free(flight);
}

/* (next, code, flies) */
static PyObject *send(struct sender *sender, const char *topic, const struct cargo *cargo, struct flight *flight)
{
    int flies, code;
    size_t next;
    Py_BEGIN_ALLOW_THREADS
    next = sender_send(sender, topic, cargo, flight, &flies, &code);
    Py_END_ALLOW_THREADS
    if (!flies)
        flight_end(flight);
    PyObject *items[] = {PyLong_FromLongLong((int64_t)next), PyLong_FromLongLong(code), PyLong_FromLongLong(flies)};
    return glue_tuple(3, items);
}

PyObject *native_send(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    struct span topic, ends;
    struct cargo cargo = {.key_size = KEY_BYTES};
    int64_t at, until;
    (void)self;
    if (count != SEND_ITEMS)
        return glue_wrong("send(sender, topic, keys, values, ends, at, until, tell)");
    struct sender *sender = PyCapsule_GetPointer(args[0], SENDER);
    if (sender == NULL || !glue_bytes(args[1], &topic) || !glue_bytes(args[2], &cargo.keys) || !glue_bytes(args[3], &cargo.values)
        || !glue_bytes(args[4], &ends) || !glue_number(args[5], 0, INT32_MAX, &at) || !glue_number(args[6], 0, INT32_MAX, &until))
        return NULL;
    cargo.ends = ends.bytes;
    cargo.at = (size_t)at;
    cargo.until = (size_t)until;
    if (!is_whole(&cargo, ends))
        return glue_wrong("records have keys of 24 bytes and values of at least one");
    struct flight *flight = calloc(1, sizeof *flight);
    if (flight == NULL)
        return PyErr_NoMemory();
    PyObject *values = args[3];
    Py_IncRef(values);
    Py_IncRef(args[7]);
    flight->values = values; /* whole before it begins: its news may be asked for at once */
    flight->tell = args[7];
    if (!sender_begin(sender, &cargo, flight)) {
        flight->values = glue_new_bytes(cargo.values.bytes, cargo.values.size);
        Py_DecRef(values);
        if (flight->values == NULL || !glue_bytes(flight->values, &cargo.values)) {
            Py_DecRef(flight->tell);
            free(flight);
            return NULL;
        }
        (void)sender_begin(sender, &cargo, flight); /* nothing of a new object is under way */
    }
    return send(sender, (const char *)topic.bytes, &cargo, flight);
}

PyObject *native_news(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    struct flight *flight;
    int64_t failed;
    int landed, code;
    (void)self;
    if (count != 1)
        return glue_wrong("news(sender)");
    struct sender *sender = PyCapsule_GetPointer(args[0], SENDER);
    if (sender == NULL)
        return NULL;
    if ((flight = sender_news(sender, &landed, &failed, &code)) == NULL) {
        Py_IncRef(Py_None);
        return Py_None;
    }
    Py_IncRef(flight->tell);
    PyObject *items[] = {flight->tell, PyLong_FromLongLong(failed), PyLong_FromLongLong(code), PyLong_FromLongLong(landed)};
    if (landed)
        flight_end(flight);
    return glue_tuple(NEWS_ITEMS, items);
}
