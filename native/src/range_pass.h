/* Conversion of RFC 5424 lines to Kafka records, equal to parsing/range.py, for lines with a certain result.
 *
 * The pass stops at the first other line; Python code handles that line, and the pass continues after it.
 */
#ifndef HOURMARK_RANGE_PASS_H
#define HOURMARK_RANGE_PASS_H

#include "avro.h"
#include "blake2b_lanes.h"
#include "syslog.h"

enum { EVENT_ID_BYTES = 16, RANGE_ID_BYTES = 8, KEY_BYTES = 24, PLACE_BYTES = 8, HASH_BYTES = 8, FRAMING_BYTES = 5, ALTERNATIVES_MAX = 8 };

/* One way to store a text: the branch's index if the field is a union, and whether it may be other than UTF-8. */
struct alternative {
    struct span index;
    int any_bytes;
};

struct line_type {
    struct span name; /* the MSGID that names it */
    uint32_t number;  /* its number in Python */
    struct span framing;
    int observed; /* whether a line without a timestamp gets the time at which it was read */
    const struct program *program; /* of a JSON payload; NULL for text */
    int skips_mark; /* of a text: whether a leading byte order mark is removed */
    struct span before, after; /* of a text: the datum around its field */
    struct alternative alternatives[ALTERNATIVES_MAX];
    uint32_t alternative_count;
};

/* The common properties of all lines of a range. */
struct range {
    const struct line_type *types; /* sorted by name */
    uint32_t type_count;
    struct span host, source_and_file; /* as encoded in the envelope */
    struct blake2b id_prefix; /* common beginning of all event ids' digests */
    struct span range_id;
    int64_t observed_at_ms, earliest_ms, latest_ms, bucket_s, start;
    int64_t line_bytes_max, event_bytes_max;
};

struct made {
    uint32_t type; /* of the range's types */
    size_t at, size; /* of the value */
};

/* A parsed line whose id is not computed yet. */
struct unnamed {
    int64_t time_ms, position;
    struct span line;
    size_t value_at, id_at; /* position of the id in `values` and in `ids` */
};

/* The results of a pass; reused by later passes to avoid allocations. */
struct work {
    struct tape tape;
    struct places places;
    struct buffer values, ids, where, made; /* `where`: type number and hour start in minutes, 4 bytes each, little-endian */
    struct buffer hashes; /* of each value, as in hourmark/avro/value_hash.py: 8 bytes, native byte order */
    uint32_t last_type;
    struct unnamed unnamed[BLAKE2B_LANES];
    int unnamed_count;
};

struct limits {
    size_t lines, bytes, values;
};

/* Parse lines from `at` on until a limit is reached or a line is UNSURE. Sets `at` to the beginning of the next line. */
enum verdict range_pass(const struct range *range, struct work *work, struct span body, size_t *at, struct limits limits);

void work_free(struct work *work);

#endif
