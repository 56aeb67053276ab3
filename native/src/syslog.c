#include "syslog.h"

enum { TIMESTAMP_MAX = 64, FIELD_MAX = 255 };

struct cursor {
    const uint8_t *at, *end;
};

static int skip(struct cursor *in, uint8_t byte)
{
    if (in->at == in->end || *in->at != byte)
        return 0;
    in->at++;
    return 1;
}

static int is_digit(uint8_t byte)
{
    return byte >= '0' && byte <= '9';
}

/* "<0>" to "<191>", without leading zeros. */
static int priority(struct cursor *in)
{
    int value = 0, count = 0;
    if (!skip(in, '<'))
        return 0;
    for (; in->at < in->end && is_digit(*in->at) && count < 4; in->at++, count++) {
        if (count == 1 && value == 0)
            return 0;
        value = value * 10 + (*in->at - '0');
    }
    return count >= 1 && value <= 191 && skip(in, '>');
}

/* Printable characters of US-ASCII without the space, and the space after them. */
static int word(struct cursor *in, size_t longest, struct span *found)
{
    const uint8_t *start = in->at;
    while (in->at < in->end && *in->at >= '!' && *in->at <= '~')
        in->at++;
    found->bytes = start;
    found->size = (size_t)(in->at - start);
    return found->size >= 1 && found->size <= longest && skip(in, ' ');
}

static int sd_name(struct cursor *in)
{
    const uint8_t *start = in->at;
    while (in->at < in->end && *in->at >= '!' && *in->at <= '~' && *in->at != '=' && *in->at != ']' && *in->at != '"')
        in->at++;
    return in->at - start >= 1 && in->at - start <= FIELD_MAX;
}

static int sd_value(struct cursor *in)
{
    if (!skip(in, '"'))
        return 0;
    while (in->at < in->end && *in->at != '"' && *in->at != ']') {
        if (*in->at == '\\' && ++in->at == in->end)
            return 0;
        in->at++;
    }
    return skip(in, '"');
}

static int structured_data(struct cursor *in)
{
    if (skip(in, '-'))
        return 1;
    if (in->at == in->end || *in->at != '[')
        return 0;
    while (skip(in, '[')) {
        if (!sd_name(in))
            return 0;
        while (skip(in, ' '))
            if (!sd_name(in) || !skip(in, '=') || !sd_value(in))
                return 0;
        if (!skip(in, ']'))
            return 0;
    }
    return 1;
}

int syslog_take_apart(const uint8_t *line, size_t size, struct syslog_line *parts)
{
    struct cursor in = {line, line + size};
    struct span unused;
    if (!priority(&in) || !skip(&in, '1') || !skip(&in, ' '))
        return 0;
    if (!word(&in, TIMESTAMP_MAX, &parts->timestamp) || !word(&in, FIELD_MAX, &parts->host))
        return 0;
    if (!word(&in, FIELD_MAX, &unused) || !word(&in, FIELD_MAX, &unused) || !word(&in, FIELD_MAX, &parts->msgid))
        return 0;
    if (!structured_data(&in))
        return 0;
    if (in.at == in.end || (*in.at == '\r' && in.end - in.at == 1)) {
        parts->msg = (struct span){in.end, 0};
        return 1;
    }
    if (!skip(&in, ' '))
        return 0;
    parts->msg = (struct span){in.at, (size_t)(in.end - in.at)};
    return 1;
}
