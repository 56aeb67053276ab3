#include "datum_walk.h"

#include <stdlib.h>
#include <string.h>

#include "strings.h"

/* Limits on what one datum may cost; hourmark/avro/datum_check.py has the same. */
enum { DEPTH_MAX = 128, VISITS_MIN = 1 << 20, VISITS_PER_BYTE = 64, FIXED_MAX = 1 << 30 };

enum { UUID_CHARS = 36 };

struct walk {
    const uint32_t *words;
    const uint8_t *end;
    uint64_t visits_left;
    enum datum_verdict verdict; /* of the datum, where a step returned NULL */
};

static size_t node_words(const uint32_t *words, size_t left)
{
    uint32_t kind = words[0];
    if (kind <= D_STRING || kind == D_UUID)
        return 1;
    if (kind <= D_MAP)
        return 2;
    if (kind == D_BETWEEN)
        return 5;
    return left < 2 ? SIZE_MAX : 2 + (size_t)words[1];
}

static int refers_well(const uint32_t *words, size_t count, const uint8_t *starts)
{
    for (size_t at = 0; at < count;) {
        size_t size = node_words(words + at, count - at);
        uint32_t kind = words[at];
        size_t first = kind == D_ARRAY || kind == D_MAP ? 1 : kind == D_RECORD || kind == D_UNION ? 2 : size;
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

/* Every step takes the place of the next byte and returns the place after what it has checked, or NULL. */
static const uint8_t *refuse(struct walk *w, enum datum_verdict verdict)
{
    w->verdict = verdict;
    return NULL;
}

static const uint8_t *take_longer(struct walk *w, const uint8_t *at, int64_t *value)
{
    uint64_t zigzag = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
        if (at == w->end)
            return refuse(w, D_TOO_SHORT);
        uint8_t byte = *at++;
        if (shift == 63 && byte > 1)
            break;
        zigzag |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = (int64_t)(zigzag >> 1) ^ -(int64_t)(zigzag & 1);
            return at;
        }
    }
    return refuse(w, D_BAD_NUMBER);
}

/* A zig-zag varint of ten bytes at most; most are of one byte. */
static inline const uint8_t *take_long(struct walk *w, const uint8_t *at, int64_t *value)
{
    if (at < w->end && *at < 0x80) {
        *value = (int64_t)(*at >> 1) ^ -(int64_t)(*at & 1);
        return at + 1;
    }
    return take_longer(w, at, value);
}

static inline const uint8_t *take_between(struct walk *w, const uint8_t *at, int64_t lowest, int64_t greatest)
{
    int64_t value = 0;
    at = take_long(w, at, &value);
    return at == NULL || (value >= lowest && value <= greatest) ? at : refuse(w, D_BAD_NUMBER);
}

static inline const uint8_t *pass(struct walk *w, const uint8_t *at, uint64_t size)
{
    return (uint64_t)(w->end - at) < size ? refuse(w, D_TOO_SHORT) : at + size;
}

static inline uint64_t eight(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline uint32_t four(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* The last load overlaps the one before it, so that no byte is looked at alone. */
static inline int is_ascii(const uint8_t *at, size_t size)
{
    uint64_t any = 0;
    if (size >= 8) {
        for (size_t i = 0; i + 8 < size; i += 8)
            any |= eight(at + i);
        any |= eight(at + size - 8);
    } else if (size >= 4) {
        any = four(at) | four(at + size - 4);
    } else if (size > 0) {
        any = (uint64_t)(at[0] | at[size / 2] | at[size - 1]);
    }
    return (any & 0x8080808080808080u) == 0;
}

static inline const uint8_t *take_bytes(struct walk *w, const uint8_t *at, int is_text)
{
    int64_t size = 0;
    at = take_long(w, at, &size);
    if (at == NULL)
        return NULL;
    if (size < 0)
        return refuse(w, D_BAD_LENGTH);
    if (w->end - at < size)
        return refuse(w, D_TOO_SHORT);
    return !is_text || is_ascii(at, (size_t)size) || is_utf8(at, (size_t)size) ? at + size : refuse(w, D_BAD_TEXT);
}

static int is_hex(uint8_t c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
}

/* RFC 9562: 8-4-4-4-12 hexadecimal digits. */
static const uint8_t *take_uuid(struct walk *w, const uint8_t *at)
{
    int64_t size = 0;
    at = take_long(w, at, &size);
    if (at == NULL)
        return NULL;
    if (size != UUID_CHARS)
        return refuse(w, D_BAD_UUID);
    if (w->end - at < UUID_CHARS)
        return refuse(w, D_TOO_SHORT);
    for (int i = 0; i < UUID_CHARS; i++)
        if (i == 8 || i == 13 || i == 18 || i == 23 ? at[i] != '-' : !is_hex(at[i]))
            return refuse(w, D_BAD_UUID);
    return at + UUID_CHARS;
}

static const uint8_t *take_nodes(struct walk *w, const uint8_t *at, const uint32_t *refs, uint32_t count, int depth);

/* Blocks of items; a negative count is followed by the block's size in bytes, which readers skip by. */
static const uint8_t *take_blocks(struct walk *w, const uint8_t *at, const uint32_t *item, int is_map, int depth)
{
    for (;;) {
        int64_t count = 0, size = -1;
        at = take_long(w, at, &count);
        if (at == NULL || count == 0)
            return at;
        if (count < 0) {
            if ((at = take_long(w, at, &size)) == NULL)
                return NULL;
            if (size < 0 || count == INT64_MIN)
                return refuse(w, D_BAD_BLOCK);
            count = -count;
        }
        const uint8_t *start = at;
        for (; count > 0; count--) {
            if (is_map && (at = take_bytes(w, at, 1)) == NULL)
                return NULL;
            if ((at = take_nodes(w, at, item, 1, depth)) == NULL)
                return NULL;
        }
        if (size >= 0 && at - start != size)
            return refuse(w, D_BAD_BLOCK);
    }
}

/* An index below n: of a union's branch, or an enum's symbol. */
static inline const uint8_t *take_index(struct walk *w, const uint8_t *at, uint32_t n, enum datum_verdict refusal, int64_t *index)
{
    at = take_long(w, at, index);
    return at == NULL || (*index >= 0 && *index < (int64_t)n) ? at : refuse(w, refusal);
}

static const uint8_t *take_union(struct walk *w, const uint8_t *at, const uint32_t *node, int depth)
{
    int64_t branch = 0;
    at = take_index(w, at, node[1], D_BAD_UNION, &branch);
    return at == NULL || w->words[node[2 + branch]] == D_NULL ? at : take_nodes(w, at, node + 2 + branch, 1, depth);
}

static inline int64_t wide(const uint32_t *words)
{
    return (int64_t)((uint64_t)words[1] << 32 | words[0]);
}

/* The nodes that `refs` names, one after the other. Each counts as a visit, so that no datum costs more than its size allows:
 * records without bytes may hold others, and so on. */
static const uint8_t *take_nodes(struct walk *w, const uint8_t *at, const uint32_t *refs, uint32_t count, int depth)
{
    int64_t ignored = 0;
    if (depth == 0)
        return refuse(w, D_TOO_DEEP);
    if (w->visits_left < count)
        return refuse(w, D_TOO_MUCH);
    w->visits_left -= count;
    for (uint32_t i = 0; i < count && at != NULL; i++) {
        const uint32_t *node = w->words + refs[i];
        switch (node[0]) {
        case D_NULL:
            break;
        case D_BOOLEAN:
            at = at == w->end ? refuse(w, D_TOO_SHORT) : *at > 1 ? refuse(w, D_BAD_BOOLEAN) : at + 1;
            break;
        case D_INT:
            at = take_between(w, at, INT32_MIN, INT32_MAX);
            break;
        case D_LONG:
            at = take_long(w, at, &ignored);
            break;
        case D_BETWEEN:
            at = take_between(w, at, wide(node + 1), wide(node + 3));
            break;
        case D_FLOAT:
            at = pass(w, at, 4);
            break;
        case D_DOUBLE:
            at = pass(w, at, 8);
            break;
        case D_BYTES:
            at = take_bytes(w, at, 0);
            break;
        case D_STRING:
            at = take_bytes(w, at, 1);
            break;
        case D_UUID:
            at = take_uuid(w, at);
            break;
        case D_FIXED:
            at = pass(w, at, node[1]);
            break;
        case D_ENUM:
            at = take_index(w, at, node[1], D_BAD_ENUM, &ignored);
            break;
        case D_ARRAY:
        case D_MAP:
            at = take_blocks(w, at, node + 1, node[0] == D_MAP, depth - 1);
            break;
        case D_RECORD:
            at = take_nodes(w, at, node + 2, node[1], depth - 1);
            break;
        default:
            at = take_union(w, at, node, depth - 1);
        }
    }
    return at;
}

enum datum_verdict datum_walk(const uint32_t *words, const uint8_t *datum, size_t size)
{
    static const uint32_t root = 0;
    struct walk w = {words, datum + size, VISITS_MIN + VISITS_PER_BYTE * (uint64_t)size, D_VALID};
    const uint8_t *at = take_nodes(&w, datum, &root, 1, DEPTH_MAX);
    return at == NULL ? w.verdict : at != w.end ? D_TRAILING : D_VALID;
}
