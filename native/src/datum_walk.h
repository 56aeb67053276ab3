/* Checks one Avro datum against its writer schema (Avro 1.12, "Binary Encoding"). hourmark/avro/datum_check.py makes the program.
 *
 * The program is a sequence of nodes, each a sequence of 4-byte words in the machine's byte order:
 *     kind                      null, boolean, int, long, float, double, bytes, string, uuid (a string)
 *     kind, n                   fixed (n bytes), enum (n symbols)
 *     kind, node                array, map: the node of the item
 *     kind, n, node * n         record (fields), union (branches)
 *     kind, lowest, greatest    between: an int or long of a logical type with a range; each 64 bits, the low word first
 * A node is referred to by the index of its first word. The node at word 0 is the datum's.
 */
#ifndef HOURMARK_DATUM_WALK_H
#define HOURMARK_DATUM_WALK_H

#include <stddef.h>
#include <stdint.h>

enum datum_kind {
    D_NULL, D_BOOLEAN, D_INT, D_LONG, D_FLOAT, D_DOUBLE, D_BYTES, D_STRING, D_FIXED, D_ENUM, D_ARRAY, D_MAP, D_RECORD, D_UNION,
    D_BETWEEN, D_UUID, D_KINDS,
};

/* The verdict on a datum. The values are those of `hourmark.avro.datum_check.Verdict`. */
enum datum_verdict {
    D_VALID, D_NO_FRAMING, D_TOO_SHORT, D_TRAILING, D_BAD_BOOLEAN, D_BAD_NUMBER, D_BAD_LENGTH, D_BAD_TEXT, D_BAD_ENUM, D_BAD_UNION,
    D_BAD_BLOCK, D_TOO_DEEP, D_TOO_MUCH, D_OTHER_ID, D_BAD_UUID,
};

/* Whether these words are a program: every node is whole, and every reference is to a node. Needs memory of a byte a word;
 * -1 if there is none. */
int datum_is_program(const uint32_t *words, size_t count);

/* The verdict on bytes [datum, datum + size), by a program that `datum_is_program` accepts. */
enum datum_verdict datum_walk(const uint32_t *words, const uint8_t *datum, size_t size);

#endif
