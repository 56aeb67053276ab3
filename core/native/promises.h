/* What a range's records amount to, per type and hour: the count of distinct ids, and the sum of their last 8 bytes. */
#ifndef HOURMARK_PROMISES_H
#define HOURMARK_PROMISES_H

#include <stddef.h>
#include <stdint.h>

struct promise {
    uint32_t first; /* of its rows: they all have this row's place */
    uint64_t count, sum; /* modulo 2^64 */
};

/* `ids` and `places` hold `rows` rows of 16 and 8 bytes. The promises, to be freed, or NULL without memory. */
struct promise *promises_of(const uint8_t *ids, const uint8_t *places, uint32_t rows, uint64_t seed, uint32_t *count);

#endif
