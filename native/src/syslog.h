/* The fields of an RFC 5424 line; parsing/rfc5424.py defines the format. */
#ifndef HOURMARK_SYSLOG_H
#define HOURMARK_SYSLOG_H

#include <stddef.h>
#include <stdint.h>

struct span {
    const uint8_t *bytes;
    size_t size;
};

struct syslog_line {
    struct span timestamp, host, msgid, msg;
};

/* Parse the line. Returns whether it has this format. */
int syslog_take_apart(const uint8_t *line, size_t size, struct syslog_line *parts);

#endif
