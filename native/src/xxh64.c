#include "xxh64.h"

#include <string.h>

static const uint64_t P1 = 0x9E3779B185EBCA87u, P2 = 0xC2B2AE3D27D4EB4Fu, P3 = 0x165667B19E3779F9u;
static const uint64_t P4 = 0x85EBCA77C2B2AE63u, P5 = 0x27D4EB2F165667C5u;

static uint64_t rotated(uint64_t value, int bits)
{
    return value << bits | value >> (64 - bits);
}

/* Words are little-endian in the specification, as on each processor that this module is compiled for. */
static uint64_t word64(const uint8_t *bytes)
{
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static uint64_t word32(const uint8_t *bytes)
{
    uint32_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static uint64_t lane_round(uint64_t lane, uint64_t word)
{
    return rotated(lane + word * P2, 31) * P1;
}

static uint64_t with_lane(uint64_t hash, uint64_t lane)
{
    return (hash ^ lane_round(0, lane)) * P1 + P4;
}

static uint64_t stripes(const uint8_t **at, const uint8_t *end, uint64_t seed)
{
    uint64_t a = seed + P1 + P2, b = seed + P2, c = seed, d = seed - P1;
    const uint8_t *bytes = *at;
    for (; end - bytes >= 32; bytes += 32) {
        a = lane_round(a, word64(bytes));
        b = lane_round(b, word64(bytes + 8));
        c = lane_round(c, word64(bytes + 16));
        d = lane_round(d, word64(bytes + 24));
    }
    *at = bytes;
    uint64_t hash = rotated(a, 1) + rotated(b, 7) + rotated(c, 12) + rotated(d, 18);
    return with_lane(with_lane(with_lane(with_lane(hash, a), b), c), d);
}

uint64_t xxh64(const uint8_t *bytes, size_t size, uint64_t seed)
{
    const uint8_t *at = bytes, *end = bytes + size;
    uint64_t hash = size >= 32 ? stripes(&at, end, seed) : seed + P5;
    hash += size;
    for (; end - at >= 8; at += 8)
        hash = rotated(hash ^ lane_round(0, word64(at)), 27) * P1 + P4;
    if (end - at >= 4) {
        hash = rotated(hash ^ word32(at) * P1, 23) * P2 + P3;
        at += 4;
    }
    for (; at < end; at++)
        hash = rotated(hash ^ *at * P5, 11) * P1;
    hash = (hash ^ hash >> 33) * P2;
    hash = (hash ^ hash >> 29) * P3;
    return hash ^ hash >> 32;
}
