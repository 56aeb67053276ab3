#include "strings.h"

static int is_continuation(uint8_t byte)
{
    return (byte & 0xC0) == 0x80;
}

/* Whether one of eight bytes is below 0x20, a quote, a backslash, or beyond US-ASCII. */
static int any_special(uint64_t word)
{
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    uint64_t quote = word ^ (ones * '"'), backslash = word ^ (ones * '\\');
    return (((word - ones * 0x20) | (quote - ones) | (backslash - ones) | word) & high) != 0;
}

const uint8_t *plain_end(const uint8_t *at, const uint8_t *end)
{
    while (end - at >= 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        if (any_special(word))
            break;
        at += 8;
    }
    while (at < end && *at >= 0x20 && *at < 0x80 && *at != '"' && *at != '\\')
        at++;
    return at;
}

size_t utf8_size(const uint8_t *at, const uint8_t *end)
{
    size_t left = (size_t)(end - at);
    if (left == 0)
        return 0;
    uint8_t first = at[0];
    if (first < 0x80)
        return 1;
    if (first >= 0xC2 && first <= 0xDF)
        return left >= 2 && is_continuation(at[1]) ? 2 : 0;
    if (first >= 0xE0 && first <= 0xEF) {
        uint8_t low = first == 0xE0 ? 0xA0 : 0x80, high = first == 0xED ? 0x9F : 0xBF;
        return left >= 3 && at[1] >= low && at[1] <= high && is_continuation(at[2]) ? 3 : 0;
    }
    if (first >= 0xF0 && first <= 0xF4) {
        uint8_t low = first == 0xF0 ? 0x90 : 0x80, high = first == 0xF4 ? 0x8F : 0xBF;
        return left >= 4 && at[1] >= low && at[1] <= high && is_continuation(at[2]) && is_continuation(at[3]) ? 4 : 0;
    }
    return 0;
}

int is_utf8(const uint8_t *text, size_t size)
{
    const uint8_t *at = text, *end = text + size;
    while (at < end) {
        size_t step = utf8_size(at, end);
        if (step == 0)
            return 0;
        at += step;
    }
    return 1;
}

/* A hex digit's value, or -1. */
static int hex(uint8_t byte)
{
    if (byte >= '0' && byte <= '9')
        return byte - '0';
    if (byte >= 'a' && byte <= 'f')
        return byte - 'a' + 10;
    return byte >= 'A' && byte <= 'F' ? byte - 'A' + 10 : -1;
}

/* The number after "\u", or -1. */
static int unit(const uint8_t *at, const uint8_t *end)
{
    int value = 0;
    if (end - at < 6 || at[0] != '\\' || at[1] != 'u')
        return -1;
    for (int i = 2; i < 6; i++) {
        if (hex(at[i]) < 0)
            return -1;
        value = value << 4 | hex(at[i]);
    }
    return value;
}

size_t escape_size(const uint8_t *at, const uint8_t *end)
{
    if (end - at < 2)
        return 0;
    if (at[1] != 'u')
        return at[1] != 0 && strchr("\"\\/bfnrt", at[1]) != NULL ? 2 : 0;
    int first = unit(at, end);
    if (first < 0 || (first >= 0xDC00 && first <= 0xDFFF))
        return 0;
    if (first < 0xD800 || first > 0xDBFF)
        return 6;
    int second = unit(at + 6, end);
    return second >= 0xDC00 && second <= 0xDFFF ? 12 : 0;
}

/* The character of a checked escape, and where it ends. */
static uint32_t unescaped(const uint8_t **at, const uint8_t *end)
{
    static const char NAMES[] = "bfnrt", CHARACTERS[] = "\b\f\n\r\t";
    uint8_t name = (*at)[1];
    if (name != 'u') {
        const char *found = strchr(NAMES, name);
        *at += 2;
        return found == NULL ? name : (uint8_t)CHARACTERS[found - NAMES];
    }
    uint32_t first = (uint32_t)unit(*at, end);
    *at += 6;
    if (first < 0xD800 || first > 0xDFFF)
        return first;
    uint32_t second = (uint32_t)unit(*at, end);
    *at += 6;
    return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
}

static size_t put_character(uint8_t *out, uint32_t character)
{
    if (character < 0x80) {
        out[0] = (uint8_t)character;
        return 1;
    }
    if (character < 0x800) {
        out[0] = (uint8_t)(0xC0 | character >> 6);
        out[1] = (uint8_t)(0x80 | (character & 0x3F));
        return 2;
    }
    if (character < 0x10000) {
        out[0] = (uint8_t)(0xE0 | character >> 12);
        out[1] = (uint8_t)(0x80 | (character >> 6 & 0x3F));
        out[2] = (uint8_t)(0x80 | (character & 0x3F));
        return 3;
    }
    out[0] = (uint8_t)(0xF0 | character >> 18);
    out[1] = (uint8_t)(0x80 | (character >> 12 & 0x3F));
    out[2] = (uint8_t)(0x80 | (character >> 6 & 0x3F));
    out[3] = (uint8_t)(0x80 | (character & 0x3F));
    return 4;
}

int put_unescaped(struct buffer *out, const uint8_t *text, size_t size)
{
    if (!buffer_room(out, size)) /* an escape is longer than its character's UTF-8 */
        return 0;
    const uint8_t *at = text, *end = text + size;
    while (at < end) {
        if (*at == '\\')
            out->size += put_character(out->bytes + out->size, unescaped(&at, end));
        else
            out->bytes[out->size++] = *at++;
    }
    return 1;
}

enum verdict put_latin1(struct buffer *out, const uint8_t *text, size_t size)
{
    if (!buffer_room(out, size))
        return NO_MEMORY;
    const uint8_t *at = text, *end = text + size;
    while (at < end) {
        uint32_t character = *at;
        if (character == '\\') {
            character = unescaped(&at, end);
        } else if (character < 0x80) {
            at++;
        } else {
            if (utf8_size(at, end) != 2)
                return MISMATCH;
            character = (character & 0x1F) << 6 | (at[1] & 0x3Fu);
            at += 2;
        }
        if (character > 0xFF)
            return MISMATCH;
        out->bytes[out->size++] = (uint8_t)character;
    }
    return TAKEN;
}
