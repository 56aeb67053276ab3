/* The sums of a range's records by type and hour: the count of distinct ids, the sum of their last 8 bytes, and the sum of
 * the value hashes of distinct pairs of id and hash. */
#ifndef HOURMARK_PROMISES_H
#define HOURMARK_PROMISES_H

#include <stddef.h>
#include <stdint.h>

struct promise {
    uint32_t first; /* first row; all rows of the promise have its place */
    uint64_t count, sum, checksum; /* modulo 2^64 */
};

/* One row for each record of the range: id (16 bytes), place (8 bytes), hash (8 bytes). */
struct promised_rows {
    const uint8_t *ids, *places, *hashes;
    uint32_t count;
    uint64_t seed; /* of the hash tables; the author of the lines must not be able to guess it */
};

/* Return the promises, which the caller frees, or NULL without memory. */
struct promise *promises_of(const struct promised_rows *rows, uint32_t *count);

#endif
