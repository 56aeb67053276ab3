/* RFC 3339 on bytes; the rules stand in parsing/timestamps.py. */
#ifndef HOURMARK_TIMESTAMPS_H
#define HOURMARK_TIMESTAMPS_H

#include <stddef.h>
#include <stdint.h>

/* Whether `text` is such a time, with at most so many digits of a fraction; if so, its Unix microseconds. */
int rfc3339_us(const uint8_t *text, size_t size, int fraction_digits_max, int64_t *micros);

#endif
