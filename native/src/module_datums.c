/* `check_datums`: the verdict on each Avro datum of a column of Kafka values, without a Python object for each record. */
#include <string.h>

#include "column.h"
#include "datum_walk.h"
#include "glue.h"

enum { EVENT_ID_BYTES = 16, KEY_BYTES_MAX = 1024, NO_PROGRAM = 255 };

/* Programs by schema id, which ascends: program i is the words [starts[i], starts[i + 1]). */
struct programs {
    const int32_t *ids;
    const int64_t *starts;
    const uint32_t *words;
    size_t count;
};

struct keys {
    const uint8_t *bytes;
    size_t each;
};

static int is_aligned(struct span of, size_t size)
{
    return of.size == 0 || (of.size % size == 0 && (uintptr_t)of.bytes % size == 0);
}

/* 1 if these are programs, 0 if not, -1 if there is no memory to tell. */
static int programs_from(struct span ids, struct span starts, struct span words, struct programs *found)
{
    if (!is_aligned(ids, sizeof(int32_t)) || !is_aligned(starts, sizeof(int64_t)) || !is_aligned(words, sizeof(uint32_t)))
        return 0;
    found->ids = (const int32_t *)(const void *)ids.bytes;
    found->starts = (const int64_t *)(const void *)starts.bytes;
    found->words = (const uint32_t *)(const void *)words.bytes;
    found->count = ids.size / sizeof(int32_t);
    if (starts.size != (found->count + 1) * sizeof(int64_t) || found->starts[0] != 0
        || (uint64_t)found->starts[found->count] != words.size / sizeof(uint32_t))
        return 0;
    int good = 1;
    for (size_t i = 0; good > 0 && i < found->count; i++) {
        int64_t size = found->starts[i + 1] - found->starts[i];
        if (size < 0 || found->starts[i + 1] > found->starts[found->count] || (i > 0 && found->ids[i] <= found->ids[i - 1]))
            return 0;
        good = datum_is_program(found->words + found->starts[i], (size_t)size);
    }
    return good;
}

/* The words of this id's program, or NULL. */
static const uint32_t *program_of(const struct programs *of, int32_t id)
{
    size_t low = 0, high = of->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (of->ids[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < of->count && of->ids[low] == id ? of->words + of->starts[low] : NULL;
}

static uint8_t verdict_on(const uint32_t *words, const uint8_t *value, int64_t size, int64_t skip, const uint8_t *event_id)
{
    if (size < skip)
        return D_NO_FRAMING;
    const uint8_t *datum = value + skip;
    size_t left = (size_t)(size - skip);
    uint8_t verdict = (uint8_t)datum_walk(words, datum, left);
    if (verdict == D_VALID && (left < EVENT_ID_BYTES || memcmp(datum, event_id, EVENT_ID_BYTES) != 0))
        verdict = D_OTHER_ID;
    return verdict;
}

static void check_each(const struct programs *programs, const uint8_t *schemas, struct keys keys, const struct column *of,
                       int64_t skip, uint8_t *verdicts)
{
    const uint32_t *words = NULL;
    int32_t known = -1; /* the schema id of `words`; ids of schemas are not negative */
    int64_t start = column_offset(of, 0);
    for (size_t i = 0; i < of->rows; i++) {
        int64_t end = column_offset(of, i + 1);
        int32_t id;
        memcpy(&id, schemas + sizeof id * i, sizeof id);
        if (id != known) {
            words = program_of(programs, id);
            known = id;
        }
        verdicts[i] = words == NULL ? NO_PROGRAM
                                    : verdict_on(words, of->content.bytes + start, end - start, skip, keys.bytes + keys.each * i);
        start = end;
    }
}

static PyObject *verdicts_of(const struct programs *programs, struct span schemas, struct span keys, size_t key_bytes,
                             const struct column *of, int64_t skip)
{
    if (schemas.size != of->rows * sizeof(int32_t) || keys.size != of->rows * key_bytes || !column_is_whole(of, 0))
        return glue_wrong("each value has a schema id and a key of the given size, and offsets ascend within the content");
    uint8_t *verdicts;
    PyObject *made = glue_room(of->rows, &verdicts);
    if (made == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    check_each(programs, schemas.bytes, (struct keys){keys.bytes, key_bytes}, of, skip, verdicts);
    Py_END_ALLOW_THREADS
    return made;
}

PyObject *native_check_datums(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    int64_t key_bytes, skip;
    struct column of;
    struct programs programs;
    Py_buffer views[7];
    struct span spans[7];
    PyObject *made;
    (void)self;
    if (count != 10)
        return glue_wrong("check_datums(ids, starts, words, schemas, keys, key_bytes, offsets, offset_bytes, skip, content)");
    PyObject *const buffers[] = {args[0], args[1], args[2], args[3], args[4], args[6], args[9]};
    if (!glue_number(args[5], EVENT_ID_BYTES, KEY_BYTES_MAX, &key_bytes)
        || !glue_number(args[7], COLUMN_NARROW, COLUMN_WIDE, &of.width) || !glue_number(args[8], 0, INT32_MAX, &skip))
        return NULL;
    if (!glue_buffers(7, buffers, views, spans))
        return NULL;
    of.rows = spans[3].size / sizeof(int32_t);
    of.offsets = spans[5];
    of.content = spans[6];
    int good = programs_from(spans[0], spans[1], spans[2], &programs);
    if (good > 0)
        made = verdicts_of(&programs, spans[3], spans[4], (size_t)key_bytes, &of, skip);
    else
        made = good < 0 ? PyErr_NoMemory() : glue_wrong("the programs' nodes are not whole, or refer to what is no node");
    glue_release(7, views);
    return made;
}
