/* A line of RFC 5424 taken apart; the form stands in parsing/rfc5424.py. */
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

/* Whether the line is of this form. */
int syslog_take_apart(const uint8_t *line, size_t size, struct syslog_line *parts);

#endif
