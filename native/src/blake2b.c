/* BLAKE2b as RFC 7693 has it, section 3. Held to Python's hashlib by a test. */
#include "blake2b.h"

#include <string.h>

const uint64_t BLAKE2B_IV[8] = {
    0x6a09e667f3bcc908u, 0xbb67ae8584caa73bu, 0x3c6ef372fe94f82bu, 0xa54ff53a5f1d36f1u,
    0x510e527fade682d1u, 0x9b05688c2b3e6c1fu, 0x1f83d9abfb41bd6bu, 0x5be0cd19137e2179u,
};

static uint64_t little_endian(const uint8_t *bytes)
{
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--)
        value = value << 8 | bytes[i];
    return value;
}

static inline uint64_t rotated(uint64_t value, int bits)
{
    return value >> bits | value << (64 - bits);
}

#define MIX(a, b, c, d, x, y)                                                                                                      \
    do {                                                                                                                           \
        a += b + (x);                                                                                                              \
        d = rotated(d ^ a, 32);                                                                                                    \
        c += d;                                                                                                                    \
        b = rotated(b ^ c, 24);                                                                                                    \
        a += b + (y);                                                                                                              \
        d = rotated(d ^ a, 16);                                                                                                    \
        c += d;                                                                                                                    \
        b = rotated(b ^ c, 63);                                                                                                    \
    } while (0)

/* One of the twelve rounds, with the words in the order of its permutation (section 2.7). */
#define ROUND(s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15)                                                \
    do {                                                                                                                           \
        MIX(v[0], v[4], v[8], v[12], m[s0], m[s1]);                                                                                \
        MIX(v[1], v[5], v[9], v[13], m[s2], m[s3]);                                                                                \
        MIX(v[2], v[6], v[10], v[14], m[s4], m[s5]);                                                                               \
        MIX(v[3], v[7], v[11], v[15], m[s6], m[s7]);                                                                               \
        MIX(v[0], v[5], v[10], v[15], m[s8], m[s9]);                                                                               \
        MIX(v[1], v[6], v[11], v[12], m[s10], m[s11]);                                                                             \
        MIX(v[2], v[7], v[8], v[13], m[s12], m[s13]);                                                                              \
        MIX(v[3], v[4], v[9], v[14], m[s14], m[s15]);                                                                              \
    } while (0)

static void compress(struct blake2b *state, const uint8_t *block, uint64_t last)
{
    uint64_t v[16], m[16];
    for (int i = 0; i < 16; i++)
        m[i] = little_endian(block + 8 * i);
    for (int i = 0; i < 8; i++) {
        v[i] = state->chain[i];
        v[i + 8] = BLAKE2B_IV[i];
    }
    v[12] ^= state->count;
    v[14] ^= last;
    ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3);
    ROUND(11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4);
    ROUND(7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8);
    ROUND(9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13);
    ROUND(2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9);
    ROUND(12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11);
    ROUND(13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10);
    ROUND(6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5);
    ROUND(10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0);
    ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3);
    for (int i = 0; i < 8; i++)
        state->chain[i] ^= v[i] ^ v[i + 8];
}

void blake2b_begin(struct blake2b *state, size_t digest_size)
{
    memcpy(state->chain, BLAKE2B_IV, sizeof state->chain);
    state->chain[0] ^= 0x01010000u ^ digest_size; /* sequential, unkeyed */
    state->count = 0;
    state->held = 0;
    state->digest_size = digest_size;
}

void blake2b_add(struct blake2b *state, const uint8_t *bytes, size_t size)
{
    size_t room = BLAKE2B_BLOCK - state->held;
    if (size > room) { /* the last block, even if it is full, is compressed at the end only */
        memcpy(state->block + state->held, bytes, room);
        state->count += BLAKE2B_BLOCK;
        compress(state, state->block, 0);
        bytes += room;
        size -= room;
        state->held = 0;
        while (size > BLAKE2B_BLOCK) {
            state->count += BLAKE2B_BLOCK;
            compress(state, bytes, 0);
            bytes += BLAKE2B_BLOCK;
            size -= BLAKE2B_BLOCK;
        }
    }
    if (size != 0)
        memcpy(state->block + state->held, bytes, size);
    state->held += size;
}

void blake2b_end(struct blake2b *state, uint8_t *digest)
{
    memset(state->block + state->held, 0, BLAKE2B_BLOCK - state->held);
    state->count += state->held;
    compress(state, state->block, UINT64_MAX);
    for (size_t i = 0; i < state->digest_size; i++)
        digest[i] = (uint8_t)(state->chain[i / 8] >> (8 * (i % 8)));
}
