/* XXH64, the 64-bit hash of the xxHash specification (version 0.2.0, doc/xxhash_spec.md). Not for adversaries: it detects accidents. */
#ifndef HOURMARK_XXH64_H
#define HOURMARK_XXH64_H

#include <stddef.h>
#include <stdint.h>

uint64_t xxh64(const uint8_t *bytes, size_t size, uint64_t seed);

#endif
