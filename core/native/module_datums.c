/* `check_datums`: the verdict on each Avro datum of a column of Kafka values, without a Python object for each record. */
#include <string.h>

#include "datum_walk.h"
#include "glue.h"

enum { ID_BYTES = 16, NARROW = 4, WIDE = 8, KEY_BYTES_MAX = 1024 };

struct column {
    struct span offsets, content;
    int64_t width, skip;
    size_t rows;
};

static int64_t offset_at(const struct column *of, size_t at)
{
    int32_t narrow;
    int64_t wide;
    if (of->width == WIDE) {
        memcpy(&wide, of->offsets.bytes + WIDE * at, sizeof wide);
        return wide;
    }
    memcpy(&narrow, of->offsets.bytes + NARROW * at, sizeof narrow);
    return narrow;
}

/* Whether offsets ascend within the content. */
static int is_column(const struct column *of)
{
    int64_t before = 0;
    if ((of->width != NARROW && of->width != WIDE) || of->offsets.size != (of->rows + 1) * (size_t)of->width)
        return 0;
    for (size_t i = 0; i <= of->rows; i++) {
        int64_t offset = offset_at(of, i);
        if (offset < before)
            return 0;
        before = offset;
    }
    return (uint64_t)before <= of->content.size;
}

static void check_each(const uint32_t *words, struct span keys, size_t key_bytes, const struct column *of, uint8_t *verdicts)
{
    for (size_t i = 0; i < of->rows; i++) {
        int64_t start = offset_at(of, i), size = offset_at(of, i + 1) - start - of->skip;
        const uint8_t *datum = of->content.bytes + start + of->skip;
        if (size < 0) {
            verdicts[i] = D_NO_FRAMING;
            continue;
        }
        verdicts[i] = (uint8_t)datum_walk(words, datum, (size_t)size);
        if (verdicts[i] == D_VALID && (size < ID_BYTES || memcmp(datum, keys.bytes + key_bytes * i, ID_BYTES) != 0))
            verdicts[i] = D_OTHER_ID;
    }
}

static PyObject *verdicts_of(struct span program, struct span keys, size_t key_bytes, struct column *of)
{
    of->rows = keys.size / key_bytes;
    if (keys.size != of->rows * key_bytes || !is_column(of))
        return glue_wrong("there is one key of the given size for each value, and offsets ascend within the content");
    if (program.size % sizeof(uint32_t) != 0 || (uintptr_t)program.bytes % sizeof(uint32_t) != 0)
        return glue_wrong("a program consists of aligned words of 4 bytes");
    const uint32_t *words = (const uint32_t *)(const void *)program.bytes;
    int good = datum_is_program(words, program.size / sizeof(uint32_t));
    if (good <= 0)
        return good < 0 ? PyErr_NoMemory() : glue_wrong("the program's nodes are not whole, or refer to what is no node");
    uint8_t *verdicts;
    PyObject *made = glue_room(of->rows, &verdicts);
    if (made == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    check_each(words, keys, key_bytes, of, verdicts);
    Py_END_ALLOW_THREADS
    return made;
}

PyObject *native_check_datums(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    int64_t key_bytes;
    struct column of;
    Py_buffer views[4];
    struct span spans[4];
    (void)self;
    if (count != 7)
        return glue_wrong("check_datums(program, keys, key_bytes, offsets, offset_bytes, skip, content)");
    PyObject *const buffers[] = {args[0], args[1], args[3], args[6]};
    if (!glue_number(args[2], ID_BYTES, KEY_BYTES_MAX, &key_bytes) || !glue_number(args[4], NARROW, WIDE, &of.width)
        || !glue_number(args[5], 0, INT32_MAX, &of.skip))
        return NULL;
    if (!glue_buffers(4, buffers, views, spans))
        return NULL;
    of.offsets = spans[2];
    of.content = spans[3];
    PyObject *made = verdicts_of(spans[0], spans[1], (size_t)key_bytes, &of);
    glue_release(4, views);
    return made;
}
