/* The module `_native`: what it offers stands in hourmark_native/_native.pyi. */
#include <stdlib.h>

#include "blake2b.h"
#include "glue.h"
#include "promises.h"

#ifndef HOURMARK_SOURCES
#define HOURMARK_SOURCES "unknown" /* `native_build` gives their digest */
#endif

enum { ROWS_MAX = 1 << 26 };

PyObject *native_blake2b(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    struct span text;
    int64_t size;
    uint8_t digest[BLAKE2B_MAX];
    struct blake2b state;
    (void)self;
    if (count != 2)
        return glue_wrong("blake2b(text, digest_size)");
    if (!glue_bytes(args[0], &text) || !glue_number(args[1], 1, BLAKE2B_MAX, &size))
        return NULL;
    blake2b_begin(&state, (size_t)size);
    blake2b_add(&state, text.bytes, text.size);
    blake2b_end(&state, digest);
    return glue_new_bytes(digest, (size_t)size);
}

static PyObject *promise_tuple(const struct promise *promise, const uint8_t *places)
{
    PyObject *items[] = {
        glue_new_bytes(places + 8 * (size_t)promise->first, 8),
        PyLong_FromUnsignedLongLong(promise->count),
        PyLong_FromUnsignedLongLong(promise->sum), PyLong_FromUnsignedLongLong(promise->checksum),
    };
    return glue_tuple(4, items);
}

PyObject *native_promises(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    struct span ids, places, hashes;
    int64_t seed;
    (void)self;
    if (count != 4)
        return glue_wrong("promises(ids, places, hashes, seed)");
    if (!glue_bytes(args[0], &ids) || !glue_bytes(args[1], &places) || !glue_bytes(args[2], &hashes)
        || !glue_number(args[3], INT64_MIN, INT64_MAX, &seed))
        return NULL;
    size_t rows = ids.size / 16;
    if (ids.size != rows * 16 || places.size != rows * 8 || hashes.size != rows * 8 || rows > ROWS_MAX)
        return glue_wrong("ids have 16 bytes each, their places and hashes 8");
    const struct promised_rows given = {ids.bytes, places.bytes, hashes.bytes, (uint32_t)rows, (uint64_t)seed};
    uint32_t found;
    struct promise *promises;
    Py_BEGIN_ALLOW_THREADS
    promises = promises_of(&given, &found);
    Py_END_ALLOW_THREADS
    if (promises == NULL)
        return PyErr_NoMemory();
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < found; i++) {
        PyObject *item = promise_tuple(&promises[i], places.bytes);
        if (item == NULL || PyList_Append(list, item) < 0) {
            Py_DecRef(list);
            list = NULL;
        }
        if (item != NULL)
            Py_DecRef(item);
    }
    free(promises);
    return list;
}

static PyObject *native_sources(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self, (void)args;
    return count == 0 ? PyUnicode_InternFromString(HOURMARK_SOURCES) : glue_wrong("sources()");
}

#define FUNCTION(name) {#name, (PyCFunction)(void (*)(void))native_##name, METH_FASTCALL, NULL}

static PyMethodDef FUNCTIONS[] = {
    FUNCTION(program), FUNCTION(source), FUNCTION(range), FUNCTION(read), FUNCTION(promises), FUNCTION(blake2b),
    FUNCTION(value_hashes), FUNCTION(check_datums), FUNCTION(tally), FUNCTION(kafka), FUNCTION(sender), FUNCTION(send), FUNCTION(news),
    FUNCTION(reader), FUNCTION(assign), FUNCTION(leave), FUNCTION(high), FUNCTION(consume), FUNCTION(close), FUNCTION(sources),
    {NULL, NULL, 0, NULL},
};

static PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, "_native", "What is done to each line and each record.", -1, FUNCTIONS, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModule_Create(&MODULE);
}
