/* The records of a pass for Python: for each type, all keys in one bytes object and all values in another. */
#ifndef HOURMARK_PACKS_H
#define HOURMARK_PACKS_H

#include "glue.h"
#include "range_pass.h"

/* The records of one type while they are packed. */
struct pack {
    size_t count, size;
    uint8_t *keys, *values, *ends; /* positions for the next record */
    uint32_t end;
};

/* [(number of a type, keys, values, ends of values), …]; `by_type` must be zeroed and is zeroed afterwards. */
PyObject *packs_made(const struct range *range, const struct work *work, struct pack *by_type);

#endif
