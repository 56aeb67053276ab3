/* Several short texts hashed at once, a lane of a vector each. */
#ifndef HOURMARK_BLAKE2B_LANES_H
#define HOURMARK_BLAKE2B_LANES_H

#include "blake2b.h"

enum { BLAKE2B_LANES = 4, BLAKE2B_LANE_BYTES = 2048 /* what a text may have, with what is held of what comes before it */ };

/* A text as hashed after what `begun` has: `head`, then `bytes`. */
struct blake2b_text {
    const uint8_t *head;
    size_t head_size;
    const uint8_t *bytes;
    size_t size;
};

/* The digests of BLAKE2B_LANES texts, each after the same beginning; `digests` are BLAKE2B_MAX apart. 0 where this processor, or
 * this compiler, has no such vectors, or a text is too long: then nothing was done.
 */
int blake2b_lanes(const struct blake2b *begun, const struct blake2b_text *texts, uint8_t *digests);

#endif
