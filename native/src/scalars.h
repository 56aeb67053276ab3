/* Avro's scalars from JSON values. The rules stand in parsing/primitives.py. */
#ifndef HOURMARK_SCALARS_H
#define HOURMARK_SCALARS_H

#include "buffer.h"
#include "json_tape.h"
#include "program.h"
#include "verdict.h"

/* Appends the value of a node that holds no others; MISMATCH if it is not of that type. */
enum verdict put_scalar(struct buffer *out, const struct node *node, const struct tape *tape, const struct token *token);

enum verdict put_string(struct buffer *out, const struct tape *tape, const struct token *string);

#endif
