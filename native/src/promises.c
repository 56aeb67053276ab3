#include "promises.h"

#include <stdlib.h>
#include <string.h>

enum { ID = 16, PLACE = 8, HASH = 8 };

enum novelty { KNOWN, NEW_VALUE, NEW_ID };

static uint64_t number_at(const uint8_t *bytes)
{
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static uint64_t big_endian(const uint8_t *bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value = value << 8 | bytes[i];
    return value;
}

/* `seed` is nothing that whoever chose the lines could know. */
static uint32_t slot(uint64_t value, uint64_t seed, uint32_t mask)
{
    value = (value ^ seed) * 0x9E3779B97F4A7C15u;
    value = (value ^ value >> 32) * (seed | 1);
    return (uint32_t)(value >> 32) & mask;
}

struct table {
    uint32_t *rows, mask; /* row or promise + 1, or 0 */
};

static int table_make(struct table *table, uint32_t rows)
{
    uint32_t size = 16;
    while (size < 2 * (uint64_t)rows)
        size *= 2;
    table->mask = size - 1;
    table->rows = calloc(size, sizeof *table->rows);
    return table->rows != NULL;
}

/* Whether this row's id, for its place, or its value, for its id and place, was not there yet; now it is. */
static enum novelty novelty_of(struct table *seen, const struct promised_rows *rows, uint32_t row)
{
    const uint8_t *id = rows->ids + (size_t)ID * row, *place = rows->places + (size_t)PLACE * row;
    const uint8_t *hash = rows->hashes + (size_t)HASH * row;
    enum novelty found = NEW_ID;
    uint32_t at = slot(number_at(id + 8), rows->seed, seen->mask);
    for (; seen->rows[at] != 0; at = (at + 1) & seen->mask) {
        size_t other = seen->rows[at] - 1;
        if (memcmp(rows->ids + ID * other, id, ID) != 0 || memcmp(rows->places + PLACE * other, place, PLACE) != 0)
            continue;
        if (memcmp(rows->hashes + HASH * other, hash, HASH) == 0)
            return KNOWN;
        found = NEW_VALUE;
    }
    seen->rows[at] = row + 1;
    return found;
}

static struct promise *promise_of(struct table *known, struct promise *promises, uint32_t *count, const uint8_t *places,
                                  uint32_t row, uint64_t seed)
{
    const uint8_t *place = places + (size_t)PLACE * row;
    uint32_t at = slot(number_at(place), seed, known->mask);
    for (; known->rows[at] != 0; at = (at + 1) & known->mask) {
        struct promise *found = &promises[known->rows[at] - 1];
        if (memcmp(places + (size_t)PLACE * found->first, place, PLACE) == 0)
            return found;
    }
    promises[*count] = (struct promise){.first = row};
    known->rows[at] = ++*count;
    return &promises[*count - 1];
}

struct promise *promises_of(const struct promised_rows *rows, uint32_t *count)
{
    struct table seen = {0}, known = {0};
    struct promise *promises = calloc((size_t)rows->count + 1, sizeof *promises);
    *count = 0;
    if (promises == NULL || !table_make(&seen, rows->count) || !table_make(&known, rows->count)) {
        free(promises);
        promises = NULL;
    } else {
        for (uint32_t row = 0; row < rows->count; row++) {
            enum novelty found = novelty_of(&seen, rows, row);
            if (found == KNOWN)
                continue;
            struct promise *promise = promise_of(&known, promises, count, rows->places, row, rows->seed);
            promise->checksum += number_at(rows->hashes + (size_t)HASH * row);
            if (found == NEW_ID) {
                promise->count++;
                promise->sum += big_endian(rows->ids + (size_t)ID * row + 8);
            }
        }
    }
    free(seen.rows);
    free(known.rows);
    return promises;
}
