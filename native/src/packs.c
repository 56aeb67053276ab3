#include "packs.h"

#include <string.h>

enum { END_BYTES = 4, PACK_ITEMS = 4 };

/* Append a type's pack, still without content. */
static int open_pack(PyObject *all, uint32_t number, struct pack *pack)
{
    PyObject *items[] = {
        PyLong_FromLongLong(number), glue_room(KEY_BYTES * pack->count, &pack->keys), glue_room(pack->size, &pack->values),
        glue_room(END_BYTES * pack->count, &pack->ends),
    };
    PyObject *tuple = glue_tuple(PACK_ITEMS, items);
    if (tuple == NULL)
        return 0;
    int appended = PyList_Append(all, tuple) == 0;
    Py_DecRef(tuple);
    return appended;
}

static void put(struct pack *pack, const struct range *range, const uint8_t *id, const uint8_t *value, size_t size)
{
    memcpy(pack->keys, id, EVENT_ID_BYTES);
    memcpy(pack->keys + EVENT_ID_BYTES, range->range_id.bytes, RANGE_ID_BYTES);
    memcpy(pack->values, value, size);
    pack->end += (uint32_t)size;
    memcpy(pack->ends, &pack->end, END_BYTES);
    pack->keys += KEY_BYTES;
    pack->values += size;
    pack->ends += END_BYTES;
}

PyObject *packs_made(const struct range *range, const struct work *work, struct pack *by_type)
{
    const struct made *made = (const struct made *)(const void *)work->made.bytes;
    size_t count = work->made.size / sizeof *made;
    for (size_t i = 0; i < count; i++) {
        by_type[made[i].type].count++;
        by_type[made[i].type].size += made[i].size;
    }
    PyObject *all = PyList_New(0);
    int whole = all != NULL;
    for (size_t i = 0; whole && i < count; i++) {
        struct pack *pack = &by_type[made[i].type];
        whole = pack->keys != NULL || open_pack(all, range->types[made[i].type].number, pack);
        if (whole)
            put(pack, range, work->ids.bytes + EVENT_ID_BYTES * i, work->values.bytes + made[i].at, made[i].size);
    }
    for (size_t i = 0; i < count; i++)
        by_type[made[i].type] = (struct pack){0};
    if (!whole && all != NULL) {
        Py_DecRef(all);
        all = NULL;
    }
    return all;
}
