/* RFC 3339 timestamps in bytes; parsing/timestamps.py defines the rules. */
#ifndef HOURMARK_TIMESTAMPS_H
#define HOURMARK_TIMESTAMPS_H

#include <stddef.h>
#include <stdint.h>

/* Parse a timestamp with a limited number of fraction digits to Unix microseconds. Returns whether `text` is one. */
int rfc3339_us(const uint8_t *text, size_t size, int fraction_digits_max, int64_t *micros);

#endif
