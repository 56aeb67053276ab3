/* Functions over columns of record values: what an Arrow binary column holds, without a Python object for each record. */
#include <string.h>

#include "column.h"
#include "glue.h"
#include "xxh64.h"

enum { SEED_BYTES = 8, HASH_BYTES = 8 };

static void hash_each(struct span seeds, const struct column *of, int64_t skip, uint8_t *hashes)
{
    int64_t start = column_offset(of, 0);
    for (size_t i = 0; i < of->rows; i++) {
        int64_t end = column_offset(of, i + 1);
        uint64_t seed, hash;
        memcpy(&seed, seeds.bytes + SEED_BYTES * i, sizeof seed);
        hash = xxh64(of->content.bytes + start + skip, (size_t)(end - start - skip), seed);
        memcpy(hashes + HASH_BYTES * i, &hash, sizeof hash);
        start = end;
    }
}

static PyObject *hashes_of(struct span seeds, const struct column *of, int64_t skip)
{
    if (seeds.size != of->rows * SEED_BYTES || !column_is_whole(of, skip))
        return glue_wrong("a seed has 8 bytes, offsets are one more, ascending, within the content, and no value is too short");
    uint8_t *hashes;
    PyObject *made = glue_room(HASH_BYTES * of->rows, &hashes);
    if (made == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    hash_each(seeds, of, skip, hashes);
    Py_END_ALLOW_THREADS
    return made;
}

PyObject *native_value_hashes(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    int64_t skip;
    struct column of;
    Py_buffer views[3];
    struct span spans[3];
    (void)self;
    if (count != 5)
        return glue_wrong("value_hashes(seeds, offsets, offset_bytes, skip, content)");
    PyObject *const buffers[] = {args[0], args[1], args[4]};
    if (!glue_number(args[2], COLUMN_NARROW, COLUMN_WIDE, &of.width) || !glue_number(args[3], 0, INT32_MAX, &skip))
        return NULL;
    if (!glue_buffers(3, buffers, views, spans))
        return NULL;
    of.offsets = spans[1];
    of.content = spans[2];
    of.rows = spans[0].size / SEED_BYTES;
    PyObject *made = hashes_of(spans[0], &of, skip);
    glue_release(3, views);
    return made;
}
