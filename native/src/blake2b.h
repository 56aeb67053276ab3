/* BLAKE2b (RFC 7693), unkeyed. */
#ifndef HOURMARK_BLAKE2B_H
#define HOURMARK_BLAKE2B_H

#include <stddef.h>
#include <stdint.h>

enum { BLAKE2B_BLOCK = 128, BLAKE2B_MAX = 64 };

extern const uint64_t BLAKE2B_IV[8];

struct blake2b {
    uint64_t chain[8];
    uint64_t count;  /* bytes compressed; below 2^64 here */
    uint8_t block[BLAKE2B_BLOCK];
    size_t held;  /* of `block` */
    size_t digest_size;
};

void blake2b_begin(struct blake2b *state, size_t digest_size);
void blake2b_add(struct blake2b *state, const uint8_t *bytes, size_t size);
void blake2b_end(struct blake2b *state, uint8_t *digest); /* writes digest_size bytes */

#endif
