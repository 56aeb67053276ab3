/* Programs, sources and ranges as Python holds them: capsules that own what C needs of them. */
#include <stdlib.h>

#include "glue.h"
#include "packs.h"

enum { TYPES_MAX = 1 << 20, TYPE_ITEMS = 6, TEXT_ITEMS = 4, RANGE_ITEMS = 11, VALUES_MAX = 1 << 20, READ_ITEMS = 7 };

static const char PROGRAM[] = "hourmark.program", SOURCE[] = "hourmark.source", RANGE[] = "hourmark.range";

struct source {
    struct line_type *types;
    uint32_t count;
    PyObject *described; /* holds the bytes and programs that `types` point to */
};

struct open_range {
    struct range range;
    struct work work;
    PyObject *source, *described;
    struct pack *packs; /* by type: the records of a pass */
    int busy;
};

static void free_program(PyObject *capsule)
{
    program_free(PyCapsule_GetPointer(capsule, PROGRAM));
}

PyObject *native_program(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    struct span bytes;
    const char *why;
    (void)self;
    if (count != 1)
        return glue_wrong("program(bytes)");
    if (!glue_bytes(args[0], &bytes))
        return NULL;
    struct program *program = program_read(bytes.bytes, bytes.size, &why);
    if (program == NULL)
        return why == NULL ? PyErr_NoMemory() : glue_wrong(why);
    PyObject *capsule = PyCapsule_New(program, PROGRAM, free_program);
    if (capsule == NULL)
        program_free(program);
    return capsule;
}

static int has_items(PyObject *tuple, Py_ssize_t count)
{
    if (PyTuple_Size(tuple) == count) /* -1, and an error, if it is no tuple */
        return 1;
    if (PyErr_Occurred() == NULL)
        glue_wrong("a tuple has not as many items as it should");
    return 0;
}

/* (skips_mark, before, after, ((index, any_bytes), …)) */
static int read_text(PyObject *text, struct line_type *type)
{
    int64_t flag;
    if (!has_items(text, TEXT_ITEMS) || !glue_number(PyTuple_GetItem(text, 0), 0, 1, &flag))
        return 0;
    type->skips_mark = (int)flag;
    if (!glue_bytes(PyTuple_GetItem(text, 1), &type->before) || !glue_bytes(PyTuple_GetItem(text, 2), &type->after))
        return 0;
    PyObject *all = PyTuple_GetItem(text, 3);
    Py_ssize_t count = PyTuple_Size(all);
    if (count < 1 || count > ALTERNATIVES_MAX) {
        if (PyErr_Occurred() == NULL)
            glue_wrong("a text has 1 to 8 alternatives");
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *one = PyTuple_GetItem(all, i);
        struct alternative *found = &type->alternatives[i];
        if (!has_items(one, 2) || !glue_bytes(PyTuple_GetItem(one, 0), &found->index)
            || !glue_number(PyTuple_GetItem(one, 1), 0, 1, &flag))
            return 0;
        found->any_bytes = (int)flag;
    }
    type->alternative_count = (uint32_t)count;
    return 1;
}

/* (name, number, framing, observed, program or None, text or None) */
static int read_type(PyObject *tuple, struct line_type *type)
{
    int64_t number, observed;
    if (!has_items(tuple, TYPE_ITEMS) || !glue_bytes(PyTuple_GetItem(tuple, 0), &type->name)
        || !glue_number(PyTuple_GetItem(tuple, 1), 0, UINT32_MAX, &number)
        || !glue_bytes(PyTuple_GetItem(tuple, 2), &type->framing) || !glue_number(PyTuple_GetItem(tuple, 3), 0, 1, &observed))
        return 0;
    type->number = (uint32_t)number;
    type->observed = (int)observed;
    if (PyTuple_GetItem(tuple, 4) == Py_None)
        return read_text(PyTuple_GetItem(tuple, 5), type);
    type->program = PyCapsule_GetPointer(PyTuple_GetItem(tuple, 4), PROGRAM);
    return type->program != NULL;
}

static void source_end(struct source *source)
{
    if (source->described != NULL)
        Py_DecRef(source->described);
    free(source->types);
    free(source);
}

static void free_source(PyObject *capsule)
{
    source_end(PyCapsule_GetPointer(capsule, SOURCE));
}

PyObject *native_source(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    if (count != 1)
        return glue_wrong("source(types)");
    Py_ssize_t types = PyTuple_Size(args[0]);
    if (types < 0)
        return NULL;
    if (types > TYPES_MAX)
        return glue_wrong("a source has too many types");
    struct source *source = calloc(1, sizeof *source);
    if (source == NULL || (source->types = calloc((size_t)types + 1, sizeof *source->types)) == NULL) {
        free(source);
        return PyErr_NoMemory();
    }
    source->count = (uint32_t)types;
    Py_IncRef(args[0]);
    source->described = args[0];
    int whole = 1;
    for (Py_ssize_t i = 0; whole && i < types; i++)
        whole = read_type(PyTuple_GetItem(args[0], i), &source->types[i]);
    PyObject *capsule = whole ? PyCapsule_New(source, SOURCE, free_source) : NULL;
    if (capsule == NULL)
        source_end(source);
    return capsule;
}

static void range_end(struct open_range *it)
{
    if (it->source != NULL)
        Py_DecRef(it->source);
    if (it->described != NULL)
        Py_DecRef(it->described);
    work_free(&it->work);
    free(it->packs);
    free(it);
}

static void free_range(PyObject *capsule)
{
    range_end(PyCapsule_GetPointer(capsule, RANGE));
}

/* host, source_and_file, id_prefix, range_id, then the numbers; all of bytes must outlive the range */
static int read_range(PyObject *tuple, struct range *range)
{
    struct span prefix;
    int64_t *numbers[] = {
        &range->observed_at_ms, &range->earliest_ms, &range->latest_ms, &range->bucket_s,
        &range->start, &range->line_bytes_max, &range->event_bytes_max,
    };
    if (!has_items(tuple, RANGE_ITEMS) || !glue_bytes(PyTuple_GetItem(tuple, 0), &range->host)
        || !glue_bytes(PyTuple_GetItem(tuple, 1), &range->source_and_file) || !glue_bytes(PyTuple_GetItem(tuple, 2), &prefix)
        || !glue_bytes(PyTuple_GetItem(tuple, 3), &range->range_id))
        return 0;
    for (int i = 0; i < 7; i++)
        if (!glue_number(PyTuple_GetItem(tuple, 4 + i), 0, INT64_MAX, numbers[i]))
            return 0;
    if (range->bucket_s < 60 || range->bucket_s % 60 != 0 || range->range_id.size != RANGE_ID_BYTES) {
        glue_wrong("buckets are whole minutes, a range id has 8 bytes");
        return 0;
    }
    blake2b_begin(&range->id_prefix, 10);
    blake2b_add(&range->id_prefix, prefix.bytes, prefix.size);
    return 1;
}

PyObject *native_range(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    if (count != 2)
        return glue_wrong("range(source, described)");
    struct source *source = PyCapsule_GetPointer(args[0], SOURCE);
    if (source == NULL)
        return NULL;
    struct open_range *it = calloc(1, sizeof *it);
    if (it == NULL || (it->packs = calloc((size_t)source->count + 1, sizeof *it->packs)) == NULL) {
        free(it);
        return PyErr_NoMemory();
    }
    Py_IncRef(args[0]);
    it->source = args[0];
    Py_IncRef(args[1]);
    it->described = args[1];
    it->range.types = source->types;
    it->range.type_count = source->count;
    PyObject *capsule = read_range(args[1], &it->range) ? PyCapsule_New(it, RANGE, free_range) : NULL;
    if (capsule == NULL)
        range_end(it);
    return capsule;
}

PyObject *native_read(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    struct span body;
    int64_t start, lines, bytes;
    (void)self;
    if (count != 5)
        return glue_wrong("read(range, body, at, lines_max, bytes_max)");
    struct open_range *it = PyCapsule_GetPointer(args[0], RANGE);
    if (it == NULL || !glue_bytes(args[1], &body) || !glue_number(args[2], 0, (int64_t)body.size, &start)
        || !glue_number(args[3], 1, INT32_MAX, &lines) || !glue_number(args[4], 1, INT32_MAX, &bytes))
        return NULL;
    if (it->busy)
        return glue_wrong("a range is read by one thread at a time");
    it->busy = 1;
    size_t at = (size_t)start;
    struct limits limits = {(size_t)lines, (size_t)bytes, VALUES_MAX};
    enum verdict found;
    Py_BEGIN_ALLOW_THREADS
    found = range_pass(&it->range, &it->work, body, &at, limits);
    Py_END_ALLOW_THREADS
    PyObject *result = NULL;
    if (found == NO_MEMORY) {
        PyErr_NoMemory();
    } else {
        PyObject *items[] = {
            PyLong_FromLongLong((int64_t)at), PyLong_FromLongLong(found == TAKEN), packs_made(&it->range, &it->work, it->packs),
            glue_new_bytes(it->work.ids.bytes, it->work.ids.size), glue_new_bytes(it->work.where.bytes, it->work.where.size),
            glue_new_bytes(it->work.hashes.bytes, it->work.hashes.size), PyLong_FromLongLong((int64_t)it->work.values.size),
        };
        result = glue_tuple(READ_ITEMS, items);
    }
    it->busy = 0;
    return result;
}
