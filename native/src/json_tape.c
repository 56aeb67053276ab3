#include "json_tape.h"

#include <stdlib.h>
#include <string.h>

#include "strings.h"

enum { TOKENS_FIRST = 64 };

struct reader {
    struct tape *tape;
    const uint8_t *start, *at, *end;
    uint32_t open[JSON_DEPTH_MAX]; /* the arrays and objects around `at` */
    int depth;
};

static int more(const struct reader *in)
{
    return in->at < in->end;
}

static void skip_space(struct reader *in)
{
    while (more(in) && (*in->at == ' ' || *in->at == '\t' || *in->at == '\r' || *in->at == '\n'))
        in->at++;
}

static int skip(struct reader *in, uint8_t byte)
{
    if (!more(in) || *in->at != byte)
        return 0;
    in->at++;
    return 1;
}

static enum verdict push(struct reader *in, struct token token)
{
    struct tape *tape = in->tape;
    if (tape->count == tape->capacity) {
        if (tape->capacity >= JSON_TOKENS_MAX)
            return UNSURE;
        uint32_t capacity = tape->capacity == 0 ? TOKENS_FIRST : tape->capacity * 2;
        struct token *tokens = realloc(tape->tokens, capacity * sizeof *tokens);
        if (tokens == NULL)
            return NO_MEMORY;
        tape->tokens = tokens;
        tape->capacity = capacity;
    }
    token.next = tape->count + 1;
    tape->tokens[tape->count++] = token;
    return TAKEN;
}

static enum verdict string(struct reader *in)
{
    if (!skip(in, '"'))
        return UNSURE;
    struct token token = {.kind = T_STRING, .ascii = 1, .start = (uint32_t)(in->at - in->start)};
    for (;;) {
        in->at = plain_end(in->at, in->end);
        if (!more(in) || *in->at < 0x20)
            return UNSURE;
        size_t step;
        if (*in->at == '"')
            break;
        if (*in->at == '\\') {
            token.escaped = 1;
            step = escape_size(in->at, in->end);
        } else {
            token.ascii = 0;
            step = utf8_size(in->at, in->end);
        }
        if (step == 0)
            return UNSURE;
        in->at += step;
    }
    token.size = (uint32_t)(in->at - in->start) - token.start;
    in->at++;
    return push(in, token);
}

static size_t skip_digits(struct reader *in)
{
    const uint8_t *start = in->at;
    while (more(in) && *in->at >= '0' && *in->at <= '9')
        in->at++;
    return (size_t)(in->at - start);
}

static enum verdict number(struct reader *in)
{
    struct token token = {.kind = T_WHOLE, .start = (uint32_t)(in->at - in->start)};
    skip(in, '-');
    int zero = more(in) && *in->at == '0';
    size_t digits = skip_digits(in);
    if (digits == 0 || (zero && digits > 1))
        return UNSURE;
    if (skip(in, '.')) {
        token.kind = T_FRACTION;
        if (skip_digits(in) == 0)
            return UNSURE;
    }
    if (skip(in, 'e') || skip(in, 'E')) {
        token.kind = T_FRACTION;
        if (!skip(in, '-'))
            skip(in, '+');
        if (skip_digits(in) == 0)
            return UNSURE;
    }
    token.size = (uint32_t)(in->at - in->start) - token.start;
    return push(in, token);
}

static enum verdict word(struct reader *in, const char *text, enum token_kind kind)
{
    size_t size = strlen(text);
    if ((size_t)(in->end - in->at) < size || memcmp(in->at, text, size) != 0)
        return UNSURE;
    in->at += size;
    return push(in, (struct token){.kind = (uint8_t)kind});
}

static enum verdict begin(struct reader *in, enum token_kind kind)
{
    if (in->depth == JSON_DEPTH_MAX)
        return UNSURE;
    in->at++;
    in->open[in->depth++] = in->tape->count;
    return push(in, (struct token){.kind = (uint8_t)kind});
}

static enum verdict value(struct reader *in)
{
    if (!more(in))
        return UNSURE;
    switch (*in->at) {
    case '{': return begin(in, T_OBJECT);
    case '[': return begin(in, T_ARRAY);
    case '"': return string(in);
    case 't': return word(in, "true", T_TRUE);
    case 'f': return word(in, "false", T_FALSE);
    case 'n': return word(in, "null", T_NULL);
    default: return number(in);
    }
}

/* The array or object that is open ends here, if its bracket does. */
static int ended(struct reader *in)
{
    struct token *open = &in->tape->tokens[in->open[in->depth - 1]];
    skip_space(in);
    if (!skip(in, open->kind == T_ARRAY ? ']' : '}'))
        return 0;
    open->next = in->tape->count;
    in->depth--;
    return 1;
}

/* The next item or member of what is open, but for what may be within it. */
static enum verdict item(struct reader *in)
{
    struct token *open = &in->tape->tokens[in->open[in->depth - 1]];
    if (open->size++ > 0 && !skip(in, ','))
        return UNSURE;
    skip_space(in);
    if (open->kind == T_OBJECT) {
        enum verdict found = string(in);
        if (found != TAKEN)
            return found;
        skip_space(in);
        if (!skip(in, ':'))
            return UNSURE;
        skip_space(in);
    }
    return value(in);
}

enum verdict tape_read(struct tape *tape, const uint8_t *text, size_t size)
{
    struct reader in = {.tape = tape, .start = text, .at = text, .end = text + size};
    tape->text = text;
    tape->count = 0;
    if (size > JSON_BYTES_MAX)
        return UNSURE;
    skip_space(&in);
    enum verdict found = value(&in);
    while (found == TAKEN && in.depth > 0)
        if (!ended(&in))
            found = item(&in);
    if (found != TAKEN)
        return found;
    skip_space(&in);
    return more(&in) ? UNSURE : TAKEN;
}

void tape_free(struct tape *tape)
{
    free(tape->tokens);
    tape->tokens = NULL;
    tape->count = tape->capacity = 0;
}
