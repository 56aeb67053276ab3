#include "program.h"

#include <stdlib.h>
#include <string.h>

enum { NODE_BYTES = 32, ENTRY_BYTES = 20, ITEMS_MAX = 1 << 20 };

struct source {
    const uint8_t *at, *end;
    int broken;
};

static uint32_t take32(struct source *in)
{
    if (in->end - in->at < 4) {
        in->broken = 1;
        return 0;
    }
    uint32_t value = (uint32_t)in->at[0] | (uint32_t)in->at[1] << 8 | (uint32_t)in->at[2] << 16 | (uint32_t)in->at[3] << 24;
    in->at += 4;
    return value;
}

static int64_t take64(struct source *in)
{
    uint64_t low = take32(in), high = take32(in);
    return (int64_t)(low | high << 32);
}

/* A number of items, each of so many bytes, which must be there. */
static uint32_t take_count(struct source *in, size_t bytes_each)
{
    uint32_t count = take32(in);
    if (count > ITEMS_MAX * (bytes_each == 1 ? 16u : 1u) || (size_t)(in->end - in->at) / bytes_each < count)
        in->broken = 1;
    return in->broken ? 0 : count;
}

uint32_t name_hash(const uint8_t *name, size_t size)
{
    uint32_t value = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < size; i++)
        value = (value ^ name[i]) * 16777619u;
    return value ^ value >> 15;
}

static int same_name(const struct program *program, uint32_t entry, const uint8_t *name, size_t size)
{
    const struct entry *found = &program->entries[entry];
    return found->name_size == size && memcmp(program->text + found->name_at, name, size) == 0;
}

uint32_t program_find(const struct program *program, const struct node *node, const uint8_t *name, size_t size)
{
    const uint32_t *table = program->names + node->names;
    for (uint32_t at = name_hash(name, size) & node->names_mask; table[at] != 0; at = (at + 1) & node->names_mask)
        if (same_name(program, table[at] - 1, name, size))
            return table[at] - 1;
    return NONE;
}

static int has_names(const struct node *node)
{
    return node->kind == N_RECORD || node->kind == N_ENUM;
}

static void add_names(struct program *program, const struct node *node)
{
    uint32_t *table = program->names + node->names;
    for (uint32_t entry = node->first; entry < node->first + node->count; entry++) {
        const struct entry *one = &program->entries[entry];
        uint32_t at = name_hash(program->text + one->name_at, one->name_size) & node->names_mask;
        while (table[at] != 0)
            at = (at + 1) & node->names_mask;
        table[at] = entry + 1;
    }
}

/* Tables at most half full, so that a search ends. Whether there was memory. */
static int make_names(struct program *program)
{
    size_t total = 0;
    for (uint32_t i = 0; i < program->node_count; i++) {
        struct node *node = &program->nodes[i];
        if (!has_names(node))
            continue;
        uint32_t size = 4;
        while (size < 2 * node->count)
            size *= 2;
        node->names = (uint32_t)total;
        node->names_mask = size - 1;
        total += size;
        if (total > 16u * ITEMS_MAX)
            return 0;
    }
    program->names = calloc(total + 1, sizeof *program->names);
    if (program->names == NULL)
        return 0;
    for (uint32_t i = 0; i < program->node_count; i++)
        if (has_names(&program->nodes[i]))
            add_names(program, &program->nodes[i]);
    return 1;
}

/* What of a program is wrong; NULL if nothing is. */
static const char *fault(const struct program *program)
{
    if (program->node_count == 0 || program->nodes[0].kind != N_RECORD)
        return "node 0 is no record";
    for (uint32_t i = 0; i < program->node_count; i++) {
        const struct node *node = &program->nodes[i];
        if (node->kind >= N_KINDS)
            return "a node is of no known kind";
        if (node->first > program->entry_count || node->count > program->entry_count - node->first)
            return "a node's entries are not there";
        if ((node->kind == N_ARRAY || node->kind == N_MAP) && node->count != 1)
            return "an array or map needs one entry";
        if (node->kind == N_TIMESTAMP && node->size == 0)
            return "a timestamp has no unit";
        if (node->kind == N_UUID_FIXED && node->size != 16)
            return "a uuid has 16 bytes";
    }
    for (uint32_t i = 0; i < program->entry_count; i++) {
        const struct entry *entry = &program->entries[i];
        if (entry->name_at > program->text_size || entry->name_size > program->text_size - entry->name_at)
            return "a name is not there";
        if (entry->node >= program->node_count)
            return "an entry's node is not there";
        if (entry->default_at == NONE)
            continue;
        if (entry->default_at > program->text_size || entry->default_size > program->text_size - entry->default_at)
            return "a default is not there";
    }
    return NULL;
}

static int read_parts(struct program *program, struct source *in)
{
    program->node_count = take_count(in, NODE_BYTES);
    program->nodes = calloc(program->node_count + 1, sizeof *program->nodes);
    for (uint32_t i = 0; program->nodes != NULL && i < program->node_count; i++) {
        struct node *node = &program->nodes[i];
        node->kind = take32(in);
        node->first = take32(in);
        node->count = take32(in);
        node->size = take32(in);
        node->low = take64(in);
        node->high = take64(in);
    }
    program->entry_count = take_count(in, ENTRY_BYTES);
    program->entries = calloc(program->entry_count + 1, sizeof *program->entries);
    for (uint32_t i = 0; program->entries != NULL && i < program->entry_count; i++) {
        struct entry *entry = &program->entries[i];
        entry->name_at = take32(in);
        entry->name_size = take32(in);
        entry->node = take32(in);
        entry->default_at = take32(in);
        entry->default_size = take32(in);
    }
    program->text_size = take_count(in, 1);
    program->text = malloc(program->text_size + 1);
    if (program->text != NULL && !in->broken)
        memcpy(program->text, in->at, program->text_size);
    in->at += in->broken ? 0 : program->text_size;
    return program->nodes != NULL && program->entries != NULL && program->text != NULL;
}

struct program *program_read(const uint8_t *bytes, size_t size, const char **why)
{
    struct source in = {bytes, bytes + size, 0};
    struct program *program = calloc(1, sizeof *program);
    *why = NULL; /* no memory */
    if (program == NULL)
        return NULL;
    if (read_parts(program, &in)) {
        *why = in.broken || in.at != in.end ? "its parts do not have the sizes that they say" : fault(program);
        if (*why == NULL) {
            if (make_names(program))
                return program;
        }
    }
    program_free(program);
    return NULL;
}

void program_free(struct program *program)
{
    if (program == NULL)
        return;
    free(program->nodes);
    free(program->entries);
    free(program->text);
    free(program->names);
    free(program);
}
