/* What a range's records amount to, per type and hour: the count of distinct ids, the sum of their last 8 bytes, and the sum of
 * the value hashes of distinct pairs of id and hash. */
#ifndef HOURMARK_PROMISES_H
#define HOURMARK_PROMISES_H

#include <stddef.h>
#include <stdint.h>

struct promise {
    uint32_t first; /* of its rows: they all have this row's place */
    uint64_t count, sum, checksum; /* modulo 2^64 */
};

/* A row each of the range's records: ids of 16 bytes, places of 8, hashes of 8. */
struct promised_rows {
    const uint8_t *ids, *places, *hashes;
    uint32_t count;
    uint64_t seed; /* of hash tables: nothing that could be guessed by whoever chose the lines */
};

/* The promises, to be freed, or NULL without memory. */
struct promise *promises_of(const struct promised_rows *rows, uint32_t *count);

#endif
