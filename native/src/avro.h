/* Conversion of JSON values to Avro's binary encoding with a program. parsing/encode.py defines the rules. */
#ifndef HOURMARK_AVRO_H
#define HOURMARK_AVRO_H

#include <stdint.h>

#include "buffer.h"
#include "json_tape.h"
#include "program.h"
#include "verdict.h"

/* Scratch memory of one writer: the member that fills each field of the records in progress. */
struct places {
    uint32_t *of_field;
    uint32_t size, capacity;
};

/* Append the datum of a payload on a tape, which must be an object. UNSURE when the datum exceeds `size_max` bytes, so that
 * a small payload whose fields have large defaults takes no more memory. Unless the result is TAKEN, `out` contains an incomplete datum.
 */
enum verdict avro_object(const struct program *program, const struct tape *tape, struct places *places, size_t size_max,
                         struct buffer *out);

#endif
