/* The records of a pass as Python gets them: for each type, all keys in one bytes object, all values in another. */
#ifndef HOURMARK_PACKS_H
#define HOURMARK_PACKS_H

#include "glue.h"
#include "range_pass.h"

/* Those of one type, while they are packed. */
struct pack {
    size_t count, size;
    uint8_t *keys, *values, *ends; /* where the next one's parts go */
    uint32_t end;
};

/* [(number of a type, keys, values, ends of values), …]; `by_type` is zeroed, and is so afterwards. */
PyObject *packs_made(const struct range *range, const struct work *work, struct pack *by_type);

#endif
