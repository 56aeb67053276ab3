/* UTF-8 and JSON's escapes. */
#ifndef HOURMARK_STRINGS_H
#define HOURMARK_STRINGS_H

#include <stddef.h>
#include <stdint.h>

#include "buffer.h"
#include "verdict.h"

/* Where the run of bytes ends that stand for themselves within a JSON string: US-ASCII but for controls, quote and backslash. */
const uint8_t *plain_end(const uint8_t *at, const uint8_t *end);

/* The size of the UTF-8 character that begins there (Unicode 15, table 3-7), 0 if none does. */
size_t utf8_size(const uint8_t *at, const uint8_t *end);

/* The size of the escape that begins there, 0 if it is none, or one half of a surrogate pair. */
size_t escape_size(const uint8_t *at, const uint8_t *end);

int is_utf8(const uint8_t *text, size_t size);

/* Appends the characters of a checked JSON string as UTF-8; whether there was memory. */
int put_unescaped(struct buffer *out, const uint8_t *text, size_t size);

/* Appends the characters of a checked JSON string as a byte each; MISMATCH if one is over U+00FF. */
enum verdict put_latin1(struct buffer *out, const uint8_t *text, size_t size);

#endif
