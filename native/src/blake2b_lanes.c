/* With AVX2: word i of all lanes is one vector. Held to the portable code by a test. */
#include "blake2b_lanes.h"

#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

#include <cpuid.h>
#include <immintrin.h>

#define WITH_AVX2 __attribute__((target("avx2")))

enum { WORDS = 16, ROUNDS = 12, AVX2_BIT = 1 << 5, OSXSAVE_BIT = 1 << 27, YMM_STATE = 6 };

static const uint8_t ORDER[10][WORDS] = { /* RFC 7693, section 2.7 */
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

static int has_avx2(void)
{
    static int known = -1; /* the same for whoever finds it */
    unsigned a, b, c, d;
    if (known >= 0)
        return known;
    int found = 0;
    if (__get_cpuid(1, &a, &b, &c, &d) && (c & OSXSAVE_BIT)) {
        unsigned low, high;
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        found = (low & YMM_STATE) == YMM_STATE && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & AVX2_BIT);
    }
    known = found;
    return found;
}

/* Words 4q to 4q+3 of all lanes' blocks, as a vector each. */
WITH_AVX2 static inline void load(const uint8_t *const *blocks, int q, __m256i *m)
{
    __m256i r[BLAKE2B_LANES];
    for (int i = 0; i < BLAKE2B_LANES; i++)
        r[i] = _mm256_loadu_si256((const __m256i *)(const void *)(blocks[i] + 32 * q));
    __m256i a = _mm256_unpacklo_epi64(r[0], r[1]), b = _mm256_unpackhi_epi64(r[0], r[1]);
    __m256i c = _mm256_unpacklo_epi64(r[2], r[3]), d = _mm256_unpackhi_epi64(r[2], r[3]);
    m[4 * q] = _mm256_permute2x128_si256(a, c, 0x20);
    m[4 * q + 1] = _mm256_permute2x128_si256(b, d, 0x20);
    m[4 * q + 2] = _mm256_permute2x128_si256(a, c, 0x31);
    m[4 * q + 3] = _mm256_permute2x128_si256(b, d, 0x31);
}

#define TURNED_32(x) _mm256_shuffle_epi32((x), 0xB1)
#define TURNED_24(x) _mm256_shuffle_epi8((x), by_24)
#define TURNED_16(x) _mm256_shuffle_epi8((x), by_16)
#define TURNED_63(x) _mm256_or_si256(_mm256_srli_epi64((x), 63), _mm256_add_epi64((x), (x)))
#define MIX(a, b, c, d, x, y)                                                                                                      \
    do {                                                                                                                           \
        a = _mm256_add_epi64(_mm256_add_epi64(a, b), (x));                                                                         \
        d = TURNED_32(_mm256_xor_si256(d, a));                                                                                     \
        c = _mm256_add_epi64(c, d);                                                                                                \
        b = TURNED_24(_mm256_xor_si256(b, c));                                                                                     \
        a = _mm256_add_epi64(_mm256_add_epi64(a, b), (y));                                                                         \
        d = TURNED_16(_mm256_xor_si256(d, a));                                                                                     \
        c = _mm256_add_epi64(c, d);                                                                                                \
        b = TURNED_63(_mm256_xor_si256(b, c));                                                                                     \
    } while (0)

/* One block of each lane. `counts` and `lasts`, as the portable `compress` has them; a lane whose `live` is 0 stays as it is. */
WITH_AVX2 static void compress(__m256i *chain, const uint8_t *const *blocks, __m256i counts, __m256i lasts, __m256i live)
{
    const __m256i by_24 = _mm256_setr_epi8(3, 4, 5, 6, 7, 0, 1, 2, 11, 12, 13, 14, 15, 8, 9, 10, 3, 4, 5, 6, 7, 0, 1, 2, 11, 12, 13,
                                           14, 15, 8, 9, 10);
    const __m256i by_16 = _mm256_setr_epi8(2, 3, 4, 5, 6, 7, 0, 1, 10, 11, 12, 13, 14, 15, 8, 9, 2, 3, 4, 5, 6, 7, 0, 1, 10, 11, 12,
                                           13, 14, 15, 8, 9);
    __m256i m[WORDS], v[WORDS];
    for (int q = 0; q < 4; q++)
        load(blocks, q, m);
    for (int i = 0; i < 8; i++) {
        v[i] = chain[i];
        v[i + 8] = _mm256_set1_epi64x((long long)BLAKE2B_IV[i]);
    }
    v[12] = _mm256_xor_si256(v[12], counts);
    v[14] = _mm256_xor_si256(v[14], lasts);
    for (int round = 0; round < ROUNDS; round++) {
        const uint8_t *s = ORDER[round % 10];
        MIX(v[0], v[4], v[8], v[12], m[s[0]], m[s[1]]);
        MIX(v[1], v[5], v[9], v[13], m[s[2]], m[s[3]]);
        MIX(v[2], v[6], v[10], v[14], m[s[4]], m[s[5]]);
        MIX(v[3], v[7], v[11], v[15], m[s[6]], m[s[7]]);
        MIX(v[0], v[5], v[10], v[15], m[s[8]], m[s[9]]);
        MIX(v[1], v[6], v[11], v[12], m[s[10]], m[s[11]]);
        MIX(v[2], v[7], v[8], v[13], m[s[12]], m[s[13]]);
        MIX(v[3], v[4], v[9], v[14], m[s[14]], m[s[15]]);
    }
    for (int i = 0; i < 8; i++)
        chain[i] = _mm256_xor_si256(chain[i], _mm256_and_si256(live, _mm256_xor_si256(v[i], v[i + 8])));
}

/* What is left to be hashed of a lane, with zeros up to a whole block; its size without them. */
static size_t lay_out(const struct blake2b *begun, const struct blake2b_text *text, uint8_t *lane)
{
    size_t size = begun->held;
    memcpy(lane, begun->block, begun->held);
    memcpy(lane + size, text->head, text->head_size);
    size += text->head_size;
    memcpy(lane + size, text->bytes, text->size);
    size += text->size;
    memset(lane + size, 0, (BLAKE2B_BLOCK - size % BLAKE2B_BLOCK) % BLAKE2B_BLOCK);
    return size;
}

WITH_AVX2 static void hash(const struct blake2b *begun, const struct blake2b_text *texts, uint8_t *digests)
{
    uint8_t lanes[BLAKE2B_LANES][BLAKE2B_LANE_BYTES];
    size_t sizes[BLAKE2B_LANES], blocks = 0;
    __m256i chain[8];
    for (int i = 0; i < BLAKE2B_LANES; i++) {
        sizes[i] = lay_out(begun, &texts[i], lanes[i]); /* 1 at least: a text has a head */
        size_t needed = (sizes[i] + BLAKE2B_BLOCK - 1) / BLAKE2B_BLOCK;
        blocks = needed > blocks ? needed : blocks;
    }
    for (int i = 0; i < 8; i++)
        chain[i] = _mm256_set1_epi64x((long long)begun->chain[i]);
    for (size_t block = 0; block < blocks; block++) {
        uint64_t counts[BLAKE2B_LANES], lasts[BLAKE2B_LANES], live[BLAKE2B_LANES];
        const uint8_t *at[BLAKE2B_LANES];
        for (int i = 0; i < BLAKE2B_LANES; i++) {
            size_t start = block * BLAKE2B_BLOCK, end = start + BLAKE2B_BLOCK;
            live[i] = start < sizes[i] ? UINT64_MAX : 0;
            lasts[i] = end >= sizes[i] ? UINT64_MAX : 0;
            counts[i] = begun->count + (end < sizes[i] ? end : sizes[i]);
            at[i] = lanes[i] + (live[i] ? start : 0);
        }
        compress(chain, at, _mm256_loadu_si256((const __m256i *)(const void *)counts),
                 _mm256_loadu_si256((const __m256i *)(const void *)lasts), _mm256_loadu_si256((const __m256i *)(const void *)live));
    }
    for (int word = 0; word < 8; word++) {
        uint64_t words[BLAKE2B_LANES];
        _mm256_storeu_si256((__m256i *)(void *)words, chain[word]);
        for (int i = 0; i < BLAKE2B_LANES; i++)
            memcpy(digests + BLAKE2B_MAX * i + 8 * word, &words[i], 8); /* little-endian, as these processors are */
    }
}

int blake2b_lanes(const struct blake2b *begun, const struct blake2b_text *texts, uint8_t *digests)
{
    for (int i = 0; i < BLAKE2B_LANES; i++)
        if (texts[i].head_size == 0 || texts[i].head_size > BLAKE2B_BLOCK
            || texts[i].size > BLAKE2B_LANE_BYTES - 2 * BLAKE2B_BLOCK)
            return 0;
    if (!has_avx2())
        return 0;
    hash(begun, texts, digests);
    return 1;
}

#else

int blake2b_lanes(const struct blake2b *begun, const struct blake2b_text *texts, uint8_t *digests)
{
    (void)begun, (void)texts, (void)digests;
    return 0;
}

#endif
