/* UTF-8 and JSON escapes. */
#ifndef HOURMARK_STRINGS_H
#define HOURMARK_STRINGS_H

#include <stddef.h>
#include <stdint.h>

#include "buffer.h"
#include "verdict.h"

/* Return the end of a run of unescaped bytes in a JSON string: US-ASCII except controls, quote and backslash. */
const uint8_t *plain_end(const uint8_t *at, const uint8_t *end);

/* Return the size of the UTF-8 character at this position (Unicode 15, table 3-7), or 0. */
size_t utf8_size(const uint8_t *at, const uint8_t *end);

/* Return the size of the escape at this position, or 0 if it is invalid or half of a surrogate pair. */
size_t escape_size(const uint8_t *at, const uint8_t *end);

int is_utf8(const uint8_t *text, size_t size);

/* Append the characters of a checked JSON string as UTF-8. Returns 0 without memory. */
int put_unescaped(struct buffer *out, const uint8_t *text, size_t size);

/* Append the characters of a checked JSON string as one byte each. MISMATCH for a character above U+00FF. */
enum verdict put_latin1(struct buffer *out, const uint8_t *text, size_t size);

#endif
