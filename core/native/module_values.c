/* Functions over columns of record values: what an Arrow binary column holds, without a Python object for each record. */
#include <string.h>

#include "glue.h"
#include "xxh64.h"

enum { SEED_BYTES = 8, HASH_BYTES = 8, NARROW = 4, WIDE = 8 };

/* Offset number `at` of an Arrow column whose offsets have `width` bytes. */
static int64_t offset_at(struct span offsets, int64_t width, size_t at)
{
    int32_t narrow;
    int64_t wide;
    if (width == WIDE) {
        memcpy(&wide, offsets.bytes + WIDE * at, sizeof wide);
        return wide;
    }
    memcpy(&narrow, offsets.bytes + NARROW * at, sizeof narrow);
    return narrow;
}

/* Whether each value has `skip` bytes at least and lies in `content`. */
static int is_column(struct span offsets, int64_t width, size_t rows, int64_t skip, struct span content)
{
    int64_t start = offset_at(offsets, width, 0);
    if (start < 0)
        return 0;
    for (size_t i = 1; i <= rows; i++) {
        int64_t end = offset_at(offsets, width, i);
        if (end < start || end - start < skip)
            return 0;
        start = end;
    }
    return (uint64_t)start <= content.size;
}

static void hash_each(struct span seeds, struct span offsets, int64_t width, size_t rows, int64_t skip, struct span content,
                      uint8_t *hashes)
{
    int64_t start = offset_at(offsets, width, 0);
    for (size_t i = 0; i < rows; i++) {
        int64_t end = offset_at(offsets, width, i + 1);
        uint64_t seed, hash;
        memcpy(&seed, seeds.bytes + SEED_BYTES * i, sizeof seed);
        hash = xxh64(content.bytes + start + skip, (size_t)(end - start - skip), seed);
        memcpy(hashes + HASH_BYTES * i, &hash, sizeof hash);
        start = end;
    }
}

static PyObject *hashes_of(struct span seeds, struct span offsets, int64_t width, int64_t skip, struct span content)
{
    size_t rows = seeds.size / SEED_BYTES;
    if (seeds.size != rows * SEED_BYTES || (width != NARROW && width != WIDE) || offsets.size != (rows + 1) * (size_t)width
        || !is_column(offsets, width, rows, skip, content))
        return glue_wrong("a seed has 8 bytes, offsets are one more, ascending, within the content, and no value is too short");
    uint8_t *hashes;
    PyObject *made = glue_room(HASH_BYTES * rows, &hashes);
    if (made == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    hash_each(seeds, offsets, width, rows, skip, content, hashes);
    Py_END_ALLOW_THREADS
    return made;
}

PyObject *native_value_hashes(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    int64_t width, skip;
    Py_buffer views[3];
    struct span spans[3];
    PyObject *const buffers[] = {args[0], args[1], args[4]};
    (void)self;
    if (count != 5)
        return glue_wrong("value_hashes(seeds, offsets, offset_bytes, skip, content)");
    if (!glue_number(args[2], NARROW, WIDE, &width) || !glue_number(args[3], 0, INT32_MAX, &skip))
        return NULL;
    if (!glue_buffers(3, buffers, views, spans))
        return NULL;
    PyObject *made = hashes_of(spans[0], spans[1], width, skip, spans[2]);
    glue_release(3, views);
    return made;
}
