/* Lines of a source in RFC 5424 to Kafka records: what parsing/range.py does, for the lines that are beyond doubt.
 *
 * The first line that is not stops the pass: the Python path takes it, and the pass goes on after it.
 */
#ifndef HOURMARK_RANGE_PASS_H
#define HOURMARK_RANGE_PASS_H

#include "avro.h"
#include "blake2b_lanes.h"
#include "syslog.h"

enum { EVENT_ID_BYTES = 16, RANGE_ID_BYTES = 8, KEY_BYTES = 24, PLACE_BYTES = 8, HASH_BYTES = 8, FRAMING_BYTES = 5, ALTERNATIVES_MAX = 8 };

/* One way in which a text may be taken: the branch's index where the field is a union, and whether it need not be UTF-8. */
struct alternative {
    struct span index;
    int any_bytes;
};

struct line_type {
    struct span name; /* the MSGID that names it */
    uint32_t number;  /* what the Python side calls it */
    struct span framing;
    int observed; /* whether a line without a timestamp takes the time at which it was read */
    const struct program *program; /* of a JSON payload; NULL for text */
    int skips_mark; /* of a text: whether a byte order mark before it is left out */
    struct span before, after; /* of a text: the datum around its field */
    struct alternative alternatives[ALTERNATIVES_MAX];
    uint32_t alternative_count;
};

/* What all lines of a range share. */
struct range {
    const struct line_type *types; /* sorted by name */
    uint32_t type_count;
    struct span host, source_and_file; /* as they stand in the envelope */
    struct blake2b id_prefix; /* the part of all event ids' digests */
    struct span range_id;
    int64_t observed_at_ms, earliest_ms, latest_ms, bucket_s, start;
    int64_t line_bytes_max, event_bytes_max;
};

struct made {
    uint32_t type; /* of the range's types */
    size_t at, size; /* of the value */
};

/* A line that was taken, but for its id. */
struct unnamed {
    int64_t time_ms, position;
    struct span line;
    size_t value_at, id_at; /* where the id belongs, of `values` and of `ids` */
};

/* What a pass makes; kept from pass to pass for its memory. */
struct work {
    struct tape tape;
    struct places places;
    struct buffer values, ids, where, made; /* `where`: type number and hour start in minutes, 4 bytes each, little-endian */
    struct buffer hashes; /* of each value, as hourmark/avro/value_hash.py makes it: 8 bytes, native byte order */
    uint32_t last_type;
    struct unnamed unnamed[BLAKE2B_LANES];
    int unnamed_count;
};

struct limits {
    size_t lines, bytes, values;
};

/* Read lines from `at` on until a limit is reached or a line is UNSURE; `at` is left where the next line begins. */
enum verdict range_pass(const struct range *range, struct work *work, struct span body, size_t *at, struct limits limits);

void work_free(struct work *work);

#endif
