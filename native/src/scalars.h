/* Conversion of JSON values to Avro scalars. parsing/primitives.py defines the rules. */
#ifndef HOURMARK_SCALARS_H
#define HOURMARK_SCALARS_H

#include "buffer.h"
#include "json_tape.h"
#include "program.h"
#include "verdict.h"

/* Append the value of a scalar node. MISMATCH if the JSON value does not have that type. */
enum verdict put_scalar(struct buffer *out, const struct node *node, const struct tape *tape, const struct token *token);

enum verdict put_string(struct buffer *out, const struct tape *tape, const struct token *string);

#endif
