#include "avro.h"

#include <stdlib.h>

#include "scalars.h"

enum { DEPTH_MAX = 4 * JSON_DEPTH_MAX, PLACES_MAX = 1 << 20, STEPS_PER_TOKEN = 64, STEPS_FEW = 1 << 12 };

struct writer {
    const struct program *program;
    const struct tape *tape;
    struct places *places;
    struct buffer *out;
    size_t end_max; /* of `out` */
    uint64_t steps_left; /* a value tried for branch after branch of nested unions is no endless work */
    int depth;
};

static enum verdict value(struct writer *it, uint32_t node, uint32_t token);

/* Room for `count` more places, all empty; where they begin, or NONE. */
static uint32_t places_take(struct places *places, uint32_t count)
{
    if (count > PLACES_MAX || places->size > PLACES_MAX - count)
        return NONE;
    if (places->capacity - places->size < count) {
        uint32_t capacity = 2 * places->capacity + count;
        uint32_t *grown = realloc(places->of_field, capacity * sizeof *grown);
        if (grown == NULL)
            return NONE;
        places->of_field = grown;
        places->capacity = capacity;
    }
    uint32_t start = places->size;
    for (uint32_t i = 0; i < count; i++)
        places->of_field[start + i] = 0;
    places->size += count;
    return start;
}

/* The field that a member names: the one after the last is the likeliest. */
static uint32_t field_named(const struct writer *it, const struct node *record, uint32_t likely, const struct token *key)
{
    const uint8_t *name = it->tape->text + key->start;
    if (likely < record->first + record->count) {
        const struct entry *entry = &it->program->entries[likely];
        if (entry->name_size == key->size && memcmp(it->program->text + entry->name_at, name, key->size) == 0)
            return likely;
    }
    return program_find(it->program, record, name, key->size);
}

/* Which member fills which field: its token in each place, 0 where none does. */
static enum verdict place_members(struct writer *it, const struct node *record, const struct token *object, uint32_t start)
{
    const struct token *tokens = it->tape->tokens;
    uint32_t key = (uint32_t)(object - tokens) + 1, likely = record->first;
    for (uint32_t i = 0; i < object->size; i++, key = tokens[key + 1].next) {
        if (tokens[key].escaped)
            return UNSURE; /* it may be a field's name spelled otherwise */
        uint32_t field = field_named(it, record, likely, &tokens[key]);
        if (field == NONE)
            return MISMATCH;
        uint32_t *place = &it->places->of_field[start + field - record->first];
        if (*place != 0)
            return UNSURE; /* a name that occurs twice */
        *place = key + 1;
        likely = field + 1;
    }
    return TAKEN;
}

static enum verdict put_fields(struct writer *it, const struct node *record, uint32_t start)
{
    for (uint32_t i = 0; i < record->count; i++) {
        const struct entry *field = &it->program->entries[record->first + i];
        uint32_t token = it->places->of_field[start + i]; /* read each time: what is within may move the places */
        if (token != 0) {
            enum verdict found = value(it, field->node, token);
            if (found != TAKEN)
                return found;
        } else if (field->default_at == NONE) {
            return MISMATCH;
        } else if (it->out->size > it->end_max) {
            return UNSURE;
        } else if (!buffer_put(it->out, it->program->text + field->default_at, field->default_size)) {
            return NO_MEMORY;
        }
    }
    return TAKEN;
}

static enum verdict record(struct writer *it, const struct node *node, const struct token *token)
{
    if (token->kind != T_OBJECT)
        return MISMATCH;
    uint32_t start = places_take(it->places, node->count);
    if (start == NONE)
        return UNSURE;
    enum verdict found = place_members(it, node, token, start);
    if (found == TAKEN)
        found = put_fields(it, node, start);
    it->places->size = start;
    return found;
}

static enum verdict array(struct writer *it, const struct node *node, const struct token *token)
{
    if (token->kind != T_ARRAY)
        return MISMATCH;
    if (token->size > 0 && !buffer_long(it->out, token->size))
        return NO_MEMORY;
    uint32_t item = (uint32_t)(token - it->tape->tokens) + 1, of = it->program->entries[node->first].node;
    for (uint32_t i = 0; i < token->size; i++, item = it->tape->tokens[item].next) {
        enum verdict found = value(it, of, item);
        if (found != TAKEN)
            return found;
    }
    return buffer_byte(it->out, 0) ? TAKEN : NO_MEMORY;
}

static int same_text(const struct tape *tape, const struct token *a, const struct token *b)
{
    return a->size == b->size && memcmp(tape->text + a->start, tape->text + b->start, a->size) == 0;
}

/* TAKEN if all names of an object surely differ: of two alike, the last would win. `table` is half empty. */
static enum verdict names_differ(struct writer *it, const struct token *object, uint32_t table, uint32_t mask)
{
    const struct token *tokens = it->tape->tokens;
    uint32_t key = (uint32_t)(object - tokens) + 1;
    for (uint32_t i = 0; i < object->size; i++, key = tokens[key + 1].next) {
        if (tokens[key].escaped)
            return UNSURE;
        uint32_t at = name_hash(it->tape->text + tokens[key].start, tokens[key].size) & mask;
        for (; it->places->of_field[table + at] != 0; at = (at + 1) & mask) {
            if (it->steps_left == 0 || same_text(it->tape, &tokens[it->places->of_field[table + at]], &tokens[key]))
                return UNSURE;
            it->steps_left--; /* names may have been chosen so that their hashes are alike */
        }
        it->places->of_field[table + at] = key;
    }
    return TAKEN;
}

static enum verdict check_names(struct writer *it, const struct token *object)
{
    uint32_t size = 2;
    while (size < 2 * object->size)
        size *= 2;
    uint32_t table = places_take(it->places, size);
    if (table == NONE)
        return UNSURE;
    enum verdict found = names_differ(it, object, table, size - 1);
    it->places->size = table;
    return found;
}

static enum verdict map(struct writer *it, const struct node *node, const struct token *token)
{
    if (token->kind != T_OBJECT)
        return MISMATCH;
    enum verdict found = token->size < 2 ? TAKEN : check_names(it, token);
    if (found != TAKEN)
        return found;
    if (token->size > 0 && !buffer_long(it->out, token->size))
        return NO_MEMORY;
    uint32_t key = (uint32_t)(token - it->tape->tokens) + 1, of = it->program->entries[node->first].node;
    for (uint32_t i = 0; i < token->size; i++, key = it->tape->tokens[key + 1].next) {
        found = put_string(it->out, it->tape, &it->tape->tokens[key]);
        if (found == TAKEN)
            found = value(it, of, key + 1);
        if (found != TAKEN)
            return found;
    }
    return buffer_byte(it->out, 0) ? TAKEN : NO_MEMORY;
}

static enum verdict choice(struct writer *it, const struct node *node, uint32_t token)
{
    size_t start = it->out->size;
    for (uint32_t i = 0; i < node->count; i++) {
        if (!buffer_long(it->out, i))
            return NO_MEMORY;
        enum verdict found = value(it, it->program->entries[node->first + i].node, token);
        if (found != MISMATCH)
            return found;
        it->out->size = start;
    }
    return MISMATCH;
}

static enum verdict symbol(struct writer *it, const struct node *node, const struct token *token)
{
    if (token->kind != T_STRING)
        return MISMATCH;
    if (token->escaped)
        return UNSURE;
    uint32_t found = program_find(it->program, node, it->tape->text + token->start, token->size);
    if (found == NONE)
        return MISMATCH;
    return buffer_long(it->out, found - node->first) ? TAKEN : NO_MEMORY;
}

static enum verdict value(struct writer *it, uint32_t index, uint32_t token_index)
{
    if (it->steps_left == 0 || it->depth == DEPTH_MAX || it->out->size > it->end_max)
        return UNSURE;
    it->steps_left--;
    it->depth++;
    const struct node *node = &it->program->nodes[index];
    const struct token *token = &it->tape->tokens[token_index];
    enum verdict found;
    switch (node->kind) {
    case N_RECORD: found = record(it, node, token); break;
    case N_ARRAY: found = array(it, node, token); break;
    case N_MAP: found = map(it, node, token); break;
    case N_UNION: found = choice(it, node, token_index); break;
    case N_ENUM: found = symbol(it, node, token); break;
    default: found = put_scalar(it->out, node, it->tape, token);
    }
    it->depth--;
    return found;
}

enum verdict avro_object(const struct program *program, const struct tape *tape, struct places *places, size_t size_max,
                         struct buffer *out)
{
    struct writer it = {.program = program, .tape = tape, .places = places, .out = out, .end_max = out->size + size_max};
    it.steps_left = STEPS_FEW + (uint64_t)STEPS_PER_TOKEN * tape->count;
    places->size = 0;
    return value(&it, 0, 0);
}
