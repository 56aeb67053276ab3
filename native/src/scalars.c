#include "scalars.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "strings.h"
#include "timestamps.h"

enum { NUMBER_CHARS_MAX = 48, UUID_CHARS = 36, TIMESTAMP_DIGITS = 6 };

static enum verdict done(int had_memory)
{
    return had_memory ? TAKEN : NO_MEMORY;
}

/* A whole number. UNSURE of "-0"; `fits` tells whether 64 bits hold it. */
static enum verdict whole(const struct tape *tape, const struct token *token, int64_t *value, int *fits)
{
    const uint8_t *at = tape->text + token->start, *end = at + token->size;
    int negative = *at == '-';
    uint64_t size = 0;
    *fits = 1;
    *value = 0;
    for (at += negative; at < end; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (size > (UINT64_MAX - digit) / 10) {
            *fits = 0;
            return TAKEN;
        }
        size = size * 10 + digit;
    }
    if (negative && size == 0)
        return UNSURE;
    if (size > (uint64_t)INT64_MAX) {
        *fits = 0;
        return TAKEN;
    }
    *value = negative ? -(int64_t)size : (int64_t)size;
    return TAKEN;
}

static enum verdict put_whole(struct buffer *out, const struct node *node, const struct tape *tape, const struct token *token)
{
    int64_t number;
    int fits;
    if (token->kind != T_WHOLE)
        return MISMATCH;
    enum verdict found = whole(tape, token, &number, &fits);
    if (found != TAKEN)
        return found;
    if (!fits) /* -2^63 is not looked at here */
        return UNSURE;
    if (number < node->low || number > node->high)
        return MISMATCH;
    return done(buffer_long(out, number));
}

static enum verdict put_timestamp(struct buffer *out, const struct node *node, const struct tape *tape, const struct token *token)
{
    int64_t micros;
    if (token->kind != T_STRING)
        return put_whole(out, node, tape, token);
    if (token->escaped)
        return UNSURE;
    if (!rfc3339_us(tape->text + token->start, token->size, TIMESTAMP_DIGITS, &micros) || micros % node->size != 0)
        return MISMATCH;
    micros /= (int64_t)node->size;
    if (micros < node->low || micros > node->high)
        return MISMATCH;
    return done(buffer_long(out, micros));
}

/* A number with a fraction or an exponent, rounded as the C library does it: to the nearest, as Python. UNSURE at the rims. */
static enum verdict fraction(const struct tape *tape, const struct token *token, double *number)
{
    char text[NUMBER_CHARS_MAX + 1], *end;
    if (token->size > NUMBER_CHARS_MAX)
        return UNSURE;
    memcpy(text, tape->text + token->start, token->size);
    text[token->size] = '\0';
    *number = strtod(text, &end);
    if (end != text + token->size) /* the locale has another decimal mark */
        return UNSURE;
    double size = fabs(*number);
    if (size > DBL_MAX || size < DBL_MIN) {
        int zeros = 1;
        for (char *at = text; at < end && *at != 'e' && *at != 'E'; at++)
            zeros = zeros && (*at < '1' || *at > '9');
        if (size != 0 || !zeros)
            return UNSURE;
    }
    return TAKEN;
}

/* Either kind of number as a double. UNSURE of whole ones that a double may not hold. */
static enum verdict number_of(const struct tape *tape, const struct token *token, double *number, int *is_whole)
{
    int64_t value;
    int fits;
    *is_whole = token->kind == T_WHOLE;
    if (token->kind == T_FRACTION)
        return fraction(tape, token, number);
    if (token->kind != T_WHOLE)
        return MISMATCH;
    enum verdict found = whole(tape, token, &value, &fits);
    if (found != TAKEN)
        return found;
    const int64_t exact = (int64_t)1 << 53;
    if (!fits || value > exact || value < -exact)
        return UNSURE;
    *number = (double)value;
    return TAKEN;
}

static int put_little_endian(struct buffer *out, uint64_t bits, int size)
{
    uint8_t bytes[8];
    for (int i = 0; i < size; i++)
        bytes[i] = (uint8_t)(bits >> (8 * i));
    return buffer_put(out, bytes, (size_t)size);
}

static enum verdict put_double(struct buffer *out, const struct tape *tape, const struct token *token)
{
    double number;
    int is_whole;
    enum verdict found = number_of(tape, token, &number, &is_whole);
    if (found != TAKEN)
        return found;
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return done(put_little_endian(out, bits, 8));
}

static enum verdict put_float(struct buffer *out, const struct tape *tape, const struct token *token)
{
    double number;
    int is_whole;
    enum verdict found = number_of(tape, token, &number, &is_whole);
    if (found != TAKEN)
        return found;
    if (fabs(number) > FLT_MAX)
        return UNSURE;
    float narrow = (float)number;
    if (is_whole && (double)narrow != number)
        return MISMATCH;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    return done(put_little_endian(out, bits, 4));
}

enum verdict put_string(struct buffer *out, const struct tape *tape, const struct token *string)
{
    const uint8_t *text = tape->text + string->start;
    if (!string->escaped)
        return done(buffer_long(out, string->size) && buffer_put(out, text, string->size));
    size_t start = out->size;
    if (!put_unescaped(out, text, string->size))
        return NO_MEMORY;
    size_t size = out->size - start;
    uint8_t length[10];
    struct buffer prefix = {length, 0, sizeof length};
    (void)buffer_long(&prefix, (int64_t)size);
    if (!buffer_room(out, prefix.size))
        return NO_MEMORY;
    memmove(out->bytes + start + prefix.size, out->bytes + start, size);
    memcpy(out->bytes + start, length, prefix.size);
    out->size += prefix.size;
    return TAKEN;
}

static int is_lower_hex(uint8_t byte)
{
    return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'f');
}

/* Whether it is 8-4-4-4-12 hex digits in lower case. */
static int is_uuid(const uint8_t *text, size_t size)
{
    if (size != UUID_CHARS)
        return 0;
    for (size_t i = 0; i < UUID_CHARS; i++) {
        int dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? text[i] != '-' : !is_lower_hex(text[i]))
            return 0;
    }
    return 1;
}

static enum verdict put_uuid_string(struct buffer *out, const struct tape *tape, const struct token *token)
{
    if (token->kind != T_STRING)
        return MISMATCH;
    if (token->escaped)
        return UNSURE;
    return is_uuid(tape->text + token->start, token->size) ? put_string(out, tape, token) : MISMATCH;
}

static int put_uuid_bytes(struct buffer *out, const uint8_t *text)
{
    uint8_t bytes[16];
    size_t count = 0;
    for (const uint8_t *at = text; count < sizeof bytes;) {
        if (*at == '-') {
            at++;
            continue;
        }
        int high = at[0] <= '9' ? at[0] - '0' : at[0] - 'a' + 10, low = at[1] <= '9' ? at[1] - '0' : at[1] - 'a' + 10;
        bytes[count++] = (uint8_t)(high << 4 | low);
        at += 2;
    }
    return buffer_put(out, bytes, sizeof bytes);
}

static enum verdict put_fixed(struct buffer *out, const struct node *node, const struct tape *tape, const struct token *token)
{
    const uint8_t *text = tape->text + token->start;
    if (token->kind != T_STRING)
        return MISMATCH;
    if (node->kind == N_UUID_FIXED) {
        if (token->escaped)
            return UNSURE;
        if (is_uuid(text, token->size))
            return done(put_uuid_bytes(out, text));
    }
    size_t start = out->size;
    enum verdict found = put_latin1(out, text, token->size);
    if (found == TAKEN && out->size - start != node->size)
        found = MISMATCH;
    if (found == MISMATCH)
        out->size = start;
    return found;
}

static enum verdict put_bytes(struct buffer *out, const struct tape *tape, const struct token *token)
{
    if (token->kind != T_STRING)
        return MISMATCH;
    if (token->ascii && !token->escaped)
        return put_string(out, tape, token);
    struct buffer bytes = {0};
    enum verdict found = put_latin1(&bytes, tape->text + token->start, token->size);
    if (found == TAKEN)
        found = done(buffer_long(out, (int64_t)bytes.size) && buffer_put(out, bytes.bytes, bytes.size));
    buffer_free(&bytes);
    return found;
}

enum verdict put_scalar(struct buffer *out, const struct node *node, const struct tape *tape, const struct token *token)
{
    switch (node->kind) {
    case N_NULL: return token->kind == T_NULL ? TAKEN : MISMATCH;
    case N_BOOLEAN:
        if (token->kind != T_TRUE && token->kind != T_FALSE)
            return MISMATCH;
        return done(buffer_byte(out, token->kind == T_TRUE));
    case N_WHOLE: return put_whole(out, node, tape, token);
    case N_TIMESTAMP: return put_timestamp(out, node, tape, token);
    case N_FLOAT: return put_float(out, tape, token);
    case N_DOUBLE: return put_double(out, tape, token);
    case N_STRING: return token->kind == T_STRING ? put_string(out, tape, token) : MISMATCH;
    case N_UUID_STRING: return put_uuid_string(out, tape, token);
    case N_BYTES: return put_bytes(out, tape, token);
    case N_FIXED:
    case N_UUID_FIXED: return put_fixed(out, node, tape, token);
    default: return UNSURE;
    }
}
