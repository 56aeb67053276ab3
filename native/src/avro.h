/* JSON values into Avro's binary form, as a program says. The rules stand in parsing/encode.py. */
#ifndef HOURMARK_AVRO_H
#define HOURMARK_AVRO_H

#include <stdint.h>

#include "buffer.h"
#include "json_tape.h"
#include "program.h"
#include "verdict.h"

/* Scratch memory of one writer: which member fills which field of the records under way. */
struct places {
    uint32_t *of_field;
    uint32_t size, capacity;
};

/* Append the datum of a payload on a tape, which must be an object. UNSURE as soon as the datum has over `size_max` bytes, so that
 * a small payload whose fields have large defaults takes no more memory. On anything but TAKEN, `out` holds a part of the datum.
 */
enum verdict avro_object(const struct program *program, const struct tape *tape, struct places *places, size_t size_max,
                         struct buffer *out);

#endif
