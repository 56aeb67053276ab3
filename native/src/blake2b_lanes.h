/* Hashing of several short texts in parallel, one in each lane of a vector. */
#ifndef HOURMARK_BLAKE2B_LANES_H
#define HOURMARK_BLAKE2B_LANES_H

#include "blake2b.h"

enum { BLAKE2B_LANES = 4, BLAKE2B_LANE_BYTES = 2048 /* maximum length of a text with the buffered bytes before it */ };

/* A text that is hashed after the content of `begun`: `head`, then `bytes`. */
struct blake2b_text {
    const uint8_t *head;
    size_t head_size;
    const uint8_t *bytes;
    size_t size;
};

/* Compute the digests of BLAKE2B_LANES texts after the same beginning, BLAKE2B_MAX bytes apart. Returns 0, without any effect, if
 * this processor or compiler has no such vectors, or if a text is too long.
 */
int blake2b_lanes(const struct blake2b *begun, const struct blake2b_text *texts, uint8_t *digests);

#endif
