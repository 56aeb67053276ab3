/* A JSON text (RFC 8259) as a flat list of tokens, checked whole: what is on the tape needs no further check of form.
 *
 * UNSURE for whatever is not JSON or is odd: lone surrogates, nesting over the limit, more tokens than the tape may have.
 */
#ifndef HOURMARK_JSON_TAPE_H
#define HOURMARK_JSON_TAPE_H

#include <stddef.h>
#include <stdint.h>

#include "verdict.h"

enum { JSON_DEPTH_MAX = 64, JSON_TOKENS_MAX = 1 << 16, JSON_BYTES_MAX = 1 << 22 };

enum token_kind { T_NULL, T_TRUE, T_FALSE, T_WHOLE, T_FRACTION, T_STRING, T_ARRAY, T_OBJECT };

struct token {
    uint8_t kind;
    uint8_t escaped;  /* a string with a backslash in it */
    uint8_t ascii;    /* a string of US-ASCII alone */
    uint32_t start;   /* of a string or number: its text, without quotes */
    uint32_t size;    /* of that text; of an array or object: how many items or members */
    uint32_t next;    /* the token after it and all within it */
};

struct tape {
    const uint8_t *text;
    struct token *tokens;
    uint32_t count, capacity;
};

enum verdict tape_read(struct tape *tape, const uint8_t *text, size_t size);
void tape_free(struct tape *tape);

#endif
