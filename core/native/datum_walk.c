#include "datum_walk.h"

#include <stdlib.h>
#include <string.h>

/* Limits on what one datum may cost; hourmark/datum_check.py has the same. */
enum { DEPTH_MAX = 128, VISITS_MIN = 1 << 20, VISITS_PER_BYTE = 64, FIXED_MAX = 1 << 30 };

struct walk {
    const uint32_t *words;
    const uint8_t *at, *end;
    uint64_t visits_left;
};

static size_t node_words(const uint32_t *words, size_t left)
{
    uint32_t kind = words[0];
    if (kind <= D_STRING)
        return 1;
    if (kind <= D_MAP)
        return 2;
    return left < 2 ? SIZE_MAX : 2 + (size_t)words[1];
}

static int refers_well(const uint32_t *words, size_t count, const uint8_t *starts)
{
    for (size_t at = 0; at < count;) {
        size_t size = node_words(words + at, count - at);
        uint32_t kind = words[at];
        size_t first = kind == D_ARRAY || kind == D_MAP ? 1 : kind >= D_RECORD ? 2 : size;
        for (size_t i = first; i < size; i++)
            if (words[at + i] >= count || !starts[words[at + i]])
                return 0;
        if (kind == D_FIXED && words[at + 1] > FIXED_MAX)
            return 0;
        at += size;
    }
    return 1;
}

int datum_is_program(const uint32_t *words, size_t count)
{
    if (count == 0)
        return 0;
    uint8_t *starts = calloc(count, 1);
    if (starts == NULL)
        return -1;
    size_t at = 0;
    while (at < count) {
        size_t size = words[at] < D_KINDS ? node_words(words + at, count - at) : SIZE_MAX;
        if (size > count - at)
            break;
        starts[at] = 1;
        at += size;
    }
    int good = at == count && refers_well(words, count, starts);
    free(starts);
    return good;
}

/* A zig-zag varint of ten bytes at most. */
static inline enum datum_verdict take_long(struct walk *w, int64_t *value)
{
    uint64_t zigzag = 0;
    if (w->at < w->end && *w->at < 0x80) { /* most are of one byte */
        zigzag = *w->at++;
        *value = (int64_t)(zigzag >> 1) ^ -(int64_t)(zigzag & 1);
        return D_VALID;
    }
    for (unsigned shift = 0; shift < 70; shift += 7) {
        if (w->at == w->end)
            return D_TOO_SHORT;
        uint8_t byte = *w->at++;
        if (shift == 63 && byte > 1)
            return D_BAD_NUMBER;
        zigzag |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = (int64_t)(zigzag >> 1) ^ -(int64_t)(zigzag & 1);
            return D_VALID;
        }
    }
    return D_BAD_NUMBER;
}

static inline enum datum_verdict pass(struct walk *w, uint64_t size)
{
    if ((uint64_t)(w->end - w->at) < size)
        return D_TOO_SHORT;
    w->at += size;
    return D_VALID;
}

/* UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF. */
static int is_utf8(const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        uint64_t eight;
        if (end - at >= 8 && (memcpy(&eight, at, 8), (eight & 0x8080808080808080u) == 0)) {
            at += 8;
            continue;
        }
        if (end - at < 8) { /* the last bytes, if all are ASCII */
            uint8_t any = 0;
            for (const uint8_t *rest = at; rest < end; rest++)
                any |= *rest;
            if (any < 0x80)
                return 1;
        }
        uint8_t lead = *at++;
        if (lead < 0x80)
            continue;
        int more = lead >= 0xC2 && lead <= 0xDF ? 1 : lead >= 0xE0 && lead <= 0xEF ? 2 : lead >= 0xF0 && lead <= 0xF4 ? 3 : 0;
        if (more == 0 || end - at < more)
            return 0;
        uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80, high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
        if (at[0] < low || at[0] > high)
            return 0;
        for (int i = 1; i < more; i++)
            if ((at[i] & 0xC0) != 0x80)
                return 0;
        at += more;
    }
    return 1;
}

static inline enum datum_verdict take_bytes(struct walk *w, int is_text)
{
    int64_t size;
    enum datum_verdict verdict = take_long(w, &size);
    if (verdict != D_VALID)
        return verdict;
    if (size < 0)
        return D_BAD_LENGTH;
    const uint8_t *start = w->at;
    if ((verdict = pass(w, (uint64_t)size)) != D_VALID)
        return verdict;
    return !is_text || is_utf8(start, w->at) ? D_VALID : D_BAD_TEXT;
}

static enum datum_verdict take_node(struct walk *w, uint32_t node, int depth);

/* Blocks of items; a negative count is followed by the block's size in bytes, which readers skip by. */
static enum datum_verdict take_blocks(struct walk *w, uint32_t item, int is_map, int depth)
{
    for (;;) {
        int64_t count, size = -1;
        enum datum_verdict verdict = take_long(w, &count);
        if (verdict != D_VALID || count == 0)
            return verdict;
        if (count < 0) {
            if ((verdict = take_long(w, &size)) != D_VALID)
                return verdict;
            if (size < 0 || count == INT64_MIN)
                return D_BAD_BLOCK;
            count = -count;
        }
        const uint8_t *start = w->at;
        for (; count > 0; count--) {
            if (is_map && (verdict = take_bytes(w, 1)) != D_VALID)
                return verdict;
            if ((verdict = take_node(w, item, depth)) != D_VALID)
                return verdict;
        }
        if (size >= 0 && w->at - start != size)
            return D_BAD_BLOCK;
    }
}

static enum datum_verdict take_chosen(struct walk *w, const uint32_t *node, int depth)
{
    int64_t branch;
    enum datum_verdict verdict = take_long(w, &branch);
    if (verdict != D_VALID)
        return verdict;
    if (branch < 0 || (uint64_t)branch >= node[1])
        return node[0] == D_ENUM ? D_BAD_ENUM : D_BAD_UNION;
    return node[0] == D_ENUM ? D_VALID : take_node(w, node[2 + branch], depth);
}

static enum datum_verdict take_int(struct walk *w)
{
    int64_t value;
    enum datum_verdict verdict = take_long(w, &value);
    if (verdict != D_VALID)
        return verdict;
    return value < INT32_MIN || value > INT32_MAX ? D_BAD_NUMBER : D_VALID;
}

static enum datum_verdict take_node(struct walk *w, uint32_t at, int depth)
{
    const uint32_t *node = w->words + at;
    enum datum_verdict verdict = D_VALID;
    int64_t ignored;
    if (w->visits_left == 0)
        return D_TOO_MUCH;
    w->visits_left--;
    if (depth == 0)
        return D_TOO_DEEP;
    switch (node[0]) {
    case D_NULL:
        return D_VALID;
    case D_BOOLEAN:
        if (w->at == w->end)
            return D_TOO_SHORT;
        return *w->at++ > 1 ? D_BAD_BOOLEAN : D_VALID;
    case D_INT:
        return take_int(w);
    case D_LONG:
        return take_long(w, &ignored);
    case D_FLOAT:
        return pass(w, 4);
    case D_DOUBLE:
        return pass(w, 8);
    case D_BYTES:
    case D_STRING:
        return take_bytes(w, node[0] == D_STRING);
    case D_FIXED:
        return pass(w, node[1]);
    case D_ARRAY:
    case D_MAP:
        return take_blocks(w, node[1], node[0] == D_MAP, depth - 1);
    case D_RECORD:
        for (uint32_t i = 0; i < node[1] && verdict == D_VALID; i++)
            verdict = take_node(w, node[2 + i], depth - 1);
        return verdict;
    default:
        return take_chosen(w, node, depth - 1);
    }
}

enum datum_verdict datum_walk(const uint32_t *words, const uint8_t *datum, size_t size)
{
    struct walk w = {words, datum, datum + size, VISITS_MIN + VISITS_PER_BYTE * (uint64_t)size};
    enum datum_verdict verdict = take_node(&w, 0, DEPTH_MAX);
    return verdict == D_VALID && w.at != w.end ? D_TRAILING : verdict;
}
