/* An Arrow binary column: where each value lies in its content. Used without a lock by whoever holds its buffers. */
#ifndef HOURMARK_COLUMN_H
#define HOURMARK_COLUMN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "syslog.h"

enum { COLUMN_NARROW = 4, COLUMN_WIDE = 8 }; /* bytes of an offset */

struct column {
    struct span offsets, content;
    int64_t width; /* COLUMN_NARROW or COLUMN_WIDE */
    size_t rows;
};

/* Offset number `at`; there is one more than rows. */
static inline int64_t column_offset(const struct column *of, size_t at)
{
    int32_t narrow;
    int64_t wide;
    if (of->width == COLUMN_WIDE) {
        memcpy(&wide, of->offsets.bytes + COLUMN_WIDE * at, sizeof wide);
        return wide;
    }
    memcpy(&narrow, of->offsets.bytes + COLUMN_NARROW * at, sizeof narrow);
    return narrow;
}

/* Whether offsets ascend within the content, and each value has so many bytes at least. */
static inline int column_is_whole(const struct column *of, int64_t least)
{
    if ((of->width != COLUMN_NARROW && of->width != COLUMN_WIDE) || of->offsets.size != (of->rows + 1) * (size_t)of->width)
        return 0;
    int64_t before = column_offset(of, 0);
    if (before < 0)
        return 0;
    for (size_t i = 1; i <= of->rows; i++) {
        int64_t offset = column_offset(of, i);
        if (offset < before || offset - before < least)
            return 0;
        before = offset;
    }
    return (uint64_t)before <= of->content.size;
}

#endif
