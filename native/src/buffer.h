/* A growing array of bytes. Nothing is ever written past `size` without `buffer_room`; one that could not grow stays as it was. */
#ifndef HOURMARK_BUFFER_H
#define HOURMARK_BUFFER_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct buffer {
    uint8_t *bytes;
    size_t size, capacity;
};

/* Whether `more` bytes can be appended now. */
static inline int buffer_room(struct buffer *out, size_t more)
{
    if (out->capacity - out->size >= more)
        return 1;
    if (more > SIZE_MAX / 4 || out->capacity > SIZE_MAX / 4)
        return 0;
    size_t capacity = out->capacity * 2 + more;
    uint8_t *bytes = realloc(out->bytes, capacity);
    if (bytes == NULL)
        return 0;
    out->bytes = bytes;
    out->capacity = capacity;
    return 1;
}

static inline int buffer_put(struct buffer *out, const void *bytes, size_t size)
{
    if (!buffer_room(out, size))
        return 0;
    if (size != 0)
        memcpy(out->bytes + out->size, bytes, size);
    out->size += size;
    return 1;
}

static inline int buffer_byte(struct buffer *out, uint8_t byte)
{
    if (!buffer_room(out, 1))
        return 0;
    out->bytes[out->size++] = byte;
    return 1;
}

/* Avro's variable-length zig-zag form (Avro 1.12, "Primitive Types"). */
static inline int buffer_long(struct buffer *out, int64_t value)
{
    if (!buffer_room(out, 10))
        return 0;
    uint64_t zigzag = ((uint64_t)value << 1) ^ (value < 0 ? UINT64_MAX : 0);
    while (zigzag > 0x7F) {
        out->bytes[out->size++] = (uint8_t)(zigzag & 0x7F) | 0x80;
        zigzag >>= 7;
    }
    out->bytes[out->size++] = (uint8_t)zigzag;
    return 1;
}

static inline void buffer_free(struct buffer *out)
{
    free(out->bytes);
    out->bytes = NULL;
    out->size = out->capacity = 0;
}

#endif
