/* A type's schema as a program: nodes that say how a JSON value becomes Avro. Made by parsing/native_program.py, checked here.
 *
 * As it is handed over, little-endian, each part preceded by its number of items as 4 bytes:
 *     nodes     kind, first, count, size as 4 bytes each; low, high as 8 bytes each, signed
 *     entries   name_at, name_size, node, default_at, default_size as 4 bytes each; default_at is NONE without a default
 *     text      bytes: names and defaults
 * Node 0 is the record of the type's own fields.
 */
#ifndef HOURMARK_PROGRAM_H
#define HOURMARK_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

enum { NONE = 0xFFFFFFFFu };

enum node_kind {
    N_NULL, N_BOOLEAN, N_WHOLE, N_TIMESTAMP, N_FLOAT, N_DOUBLE, N_STRING, N_UUID_STRING, N_BYTES, N_FIXED, N_UUID_FIXED,
    N_ENUM, N_ARRAY, N_MAP, N_RECORD, N_UNION, N_KINDS,
};

struct node {
    uint32_t kind;
    uint32_t first; /* entry: of a record's fields, an enum's symbols, a union's branches, the item of an array or map */
    uint32_t count; /* of those entries */
    uint32_t size;  /* of a fixed; of a timestamp's unit in microseconds */
    int64_t low, high; /* of whole numbers: the lowest and the highest */
    uint32_t names, names_mask; /* of a record or enum: where its table of names begins in `names`, and its size less 1 */
};

struct entry {
    uint32_t name_at, name_size, node, default_at, default_size;
};

struct program {
    uint32_t node_count, entry_count, text_size;
    struct node *nodes;
    struct entry *entries;
    uint8_t *text;
    uint32_t *names; /* hash tables of entries by name: entry + 1, or 0 */
};

/* The program, or NULL with `why` where what is handed over is none. */
struct program *program_read(const uint8_t *bytes, size_t size, const char **why);
void program_free(struct program *program);

/* For tables of names. */
uint32_t name_hash(const uint8_t *name, size_t size);

/* The entry of this name among a record's or enum's, or NONE. */
uint32_t program_find(const struct program *program, const struct node *node, const uint8_t *name, size_t size);

#endif
