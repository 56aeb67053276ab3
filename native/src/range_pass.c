#include "range_pass.h"

#include <string.h>

#include "strings.h"
#include "timestamps.h"
#include "xxh64.h"

enum { HEAD_BYTES = 16, FRACTION_DIGITS = 6, MINUTE_S = 60 };

static const uint8_t MARK[] = {0xEF, 0xBB, 0xBF};

static int is_nil(struct span text)
{
    return text.size == 1 && text.bytes[0] == '-';
}

static int compare(struct span a, struct span b)
{
    int order = memcmp(a.bytes, b.bytes, a.size < b.size ? a.size : b.size);
    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

/* The type of this name, or NULL. The one of the line before is the likeliest. */
static const struct line_type *type_named(const struct range *range, struct work *work, struct span name)
{
    if (work->last_type < range->type_count && compare(range->types[work->last_type].name, name) == 0)
        return &range->types[work->last_type];
    uint32_t low = 0, high = range->type_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = compare(range->types[middle].name, name);
        if (order == 0) {
            work->last_type = middle;
            return &range->types[middle];
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static enum verdict time_of(const struct range *range, const struct line_type *type, struct span text, int64_t *time_ms)
{
    int64_t micros;
    if (is_nil(text)) {
        *time_ms = range->observed_at_ms;
        return type->observed ? TAKEN : UNSURE;
    }
    if (!rfc3339_us(text.bytes, text.size, FRACTION_DIGITS, &micros) || micros < 0)
        return UNSURE;
    *time_ms = micros / 1000;
    return *time_ms >= range->earliest_ms && *time_ms <= range->latest_ms ? TAKEN : UNSURE;
}

static struct span without_mark(struct span text)
{
    if (text.size >= sizeof MARK && memcmp(text.bytes, MARK, sizeof MARK) == 0)
        return (struct span){text.bytes + sizeof MARK, text.size - sizeof MARK};
    return text;
}

static int put(struct buffer *out, struct span text)
{
    return buffer_put(out, text.bytes, text.size);
}

static enum verdict text_body(const struct line_type *type, struct span text, struct buffer *out)
{
    if (type->skips_mark)
        text = without_mark(text);
    for (uint32_t i = 0; i < type->alternative_count; i++) {
        const struct alternative *one = &type->alternatives[i];
        if (!one->any_bytes && !is_utf8(text.bytes, text.size))
            continue;
        int had_memory = put(out, type->before) && put(out, one->index) && buffer_long(out, (int64_t)text.size)
            && put(out, text) && put(out, type->after);
        return had_memory ? TAKEN : NO_MEMORY;
    }
    return UNSURE;
}

static enum verdict body_of(const struct line_type *type, struct work *work, struct span msg, size_t size_max)
{
    if (type->program == NULL) {
        if (type->before.size + type->after.size > size_max)
            return UNSURE;
        return text_body(type, msg, &work->values);
    }
    msg = without_mark(msg);
    enum verdict found = tape_read(&work->tape, msg.bytes, msg.size);
    return found != TAKEN ? found : avro_object(type->program, &work->tape, &work->places, size_max, &work->values);
}

static void put_big_endian(uint8_t *out, uint64_t value, int size)
{
    for (int i = 0; i < size; i++)
        out[i] = (uint8_t)(value >> (8 * (size - 1 - i)));
}

static void put_little_endian(uint8_t *out, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(value >> (8 * i));
}

/* What is hashed of a line's place, before the line. */
static void put_head(uint8_t *head, const struct unnamed *one)
{
    static const uint8_t SIZE_OF_POSITION[4] = {0, 0, 0, 8};
    memcpy(head, SIZE_OF_POSITION, sizeof SIZE_OF_POSITION);
    put_big_endian(head + 4, (uint64_t)one->position, 8);
    put_big_endian(head + 12, one->line.size, 4);
}

/* As core/hourmark/records/event_id.py makes it. */
static void put_id(uint8_t *id, int64_t time_ms, const uint8_t *digest)
{
    uint32_t first_12 = (uint32_t)digest[0] << 4 | digest[1] >> 4;
    uint64_t rest = (uint64_t)(digest[1] & 0x0F) << 60;
    for (int i = 0; i < 7; i++)
        rest |= (uint64_t)digest[2 + i] << (52 - 8 * i);
    rest |= digest[9] >> 4;
    put_big_endian(id, (uint64_t)time_ms, 6);
    put_big_endian(id + 6, 0x8000u | first_12, 2);
    put_big_endian(id + 8, (uint64_t)2 << 62 | rest >> 2, 8);
}

static void hash_each(const struct range *range, const struct blake2b_text *texts, int count, uint8_t *digests)
{
    if (count == BLAKE2B_LANES && blake2b_lanes(&range->id_prefix, texts, digests))
        return;
    for (int i = 0; i < count; i++) {
        struct blake2b state = range->id_prefix;
        blake2b_add(&state, texts[i].head, texts[i].head_size);
        blake2b_add(&state, texts[i].bytes, texts[i].size);
        blake2b_end(&state, digests + BLAKE2B_MAX * i);
    }
}

/* Give the lines that wait for one their ids. */
static void name_all(const struct range *range, struct work *work)
{
    uint8_t heads[BLAKE2B_LANES][HEAD_BYTES], digests[BLAKE2B_LANES * BLAKE2B_MAX];
    struct blake2b_text texts[BLAKE2B_LANES];
    for (int i = 0; i < work->unnamed_count; i++) {
        const struct unnamed *one = &work->unnamed[i];
        put_head(heads[i], one);
        texts[i] = (struct blake2b_text){heads[i], HEAD_BYTES, one->line.bytes, one->line.size};
    }
    hash_each(range, texts, work->unnamed_count, digests);
    for (int i = 0; i < work->unnamed_count; i++) {
        const struct unnamed *one = &work->unnamed[i];
        put_id(work->ids.bytes + one->id_at, one->time_ms, digests + BLAKE2B_MAX * i);
        memcpy(work->values.bytes + one->value_at, work->ids.bytes + one->id_at, EVENT_ID_BYTES);
    }
    work->unnamed_count = 0;
}

/* The value's parts before the fields of its own; the event's id is left open. */
static int put_envelope(const struct range *range, const struct line_type *type, struct span host, int64_t time_ms,
                        int64_t position, struct buffer *out)
{
    static const uint8_t OPEN[EVENT_ID_BYTES];
    if (!put(out, type->framing) || !buffer_put(out, OPEN, sizeof OPEN) || !buffer_long(out, time_ms))
        return 0;
    if (is_nil(host) ? !put(out, range->host) : !buffer_long(out, (int64_t)host.size) || !put(out, host))
        return 0;
    return put(out, range->source_and_file) && buffer_long(out, position);
}

static enum verdict take(const struct range *range, struct work *work, const struct line_type *type, struct unnamed *line,
                         size_t start)
{
    static const uint8_t OPEN[EVENT_ID_BYTES];
    uint8_t place[PLACE_BYTES];
    int64_t seconds = line->time_ms / 1000;
    put_little_endian(place, type->number);
    put_little_endian(place + 4, (uint32_t)((seconds - seconds % range->bucket_s) / MINUTE_S));
    struct made made = {(uint32_t)(type - range->types), start, work->values.size - start};
    line->value_at = start + type->framing.size;
    line->id_at = work->ids.size;
    if (!buffer_put(&work->ids, OPEN, sizeof OPEN) || !buffer_put(&work->where, place, sizeof place)
        || !buffer_put(&work->made, &made, sizeof made))
        return NO_MEMORY;
    work->unnamed[work->unnamed_count++] = *line;
    if (work->unnamed_count == BLAKE2B_LANES)
        name_all(range, work);
    return TAKEN;
}

static enum verdict read_line(const struct range *range, struct work *work, struct span line, size_t at)
{
    struct syslog_line parts;
    if (line.size > (uint64_t)range->line_bytes_max || !syslog_take_apart(line.bytes, line.size, &parts))
        return UNSURE;
    const struct line_type *type = type_named(range, work, parts.msgid);
    int64_t time_ms, position = range->start + (int64_t)at;
    if (type == NULL || time_of(range, type, parts.timestamp, &time_ms) != TAKEN)
        return UNSURE;
    size_t start = work->values.size;
    if (!put_envelope(range, type, parts.host, time_ms, position, &work->values))
        return NO_MEMORY;
    enum verdict found = body_of(type, work, parts.msg, (size_t)range->event_bytes_max);
    if (found != TAKEN)
        return found;
    if (work->values.size - start + KEY_BYTES > (uint64_t)range->event_bytes_max)
        return UNSURE;
    return take(range, work, type, &(struct unnamed){.time_ms = time_ms, .position = position, .line = line}, start);
}

static enum verdict read_lines(const struct range *range, struct work *work, struct span body, size_t *at, struct limits limits)
{
    size_t from = *at;
    for (size_t lines = 0; *at < body.size; lines++) {
        if (lines >= limits.lines || *at - from >= limits.bytes || work->values.size >= limits.values)
            break;
        const uint8_t *line = body.bytes + *at, *end = memchr(line, '\n', body.size - *at);
        if (end == NULL)
            return UNSURE;
        size_t before = work->values.size;
        enum verdict found = read_line(range, work, (struct span){line, (size_t)(end - line)}, *at);
        if (found != TAKEN) {
            work->values.size = before;
            return found == NO_MEMORY ? NO_MEMORY : UNSURE;
        }
        *at += (size_t)(end - line) + 1;
    }
    return TAKEN;
}

static uint64_t big_endian(const uint8_t *bytes, int size)
{
    uint64_t value = 0;
    for (int i = 0; i < size; i++)
        value = value << 8 | bytes[i];
    return value;
}

/* The hash of each value, whose id must be in its place. */
static int hash_values(struct work *work)
{
    const struct made *made = (const struct made *)(const void *)work->made.bytes;
    size_t count = work->made.size / sizeof *made;
    if (!buffer_room(&work->hashes, HASH_BYTES * count))
        return 0;
    for (size_t i = 0; i < count; i++) {
        const uint8_t *value = work->values.bytes + made[i].at;
        uint64_t tail = big_endian(work->ids.bytes + EVENT_ID_BYTES * i + 8, 8), schema_id = big_endian(value + 1, 4);
        uint64_t hash = xxh64(value + FRAMING_BYTES, made[i].size - FRAMING_BYTES, tail + schema_id);
        memcpy(work->hashes.bytes + HASH_BYTES * i, &hash, sizeof hash);
    }
    work->hashes.size = HASH_BYTES * count;
    return 1;
}

enum verdict range_pass(const struct range *range, struct work *work, struct span body, size_t *at, struct limits limits)
{
    work->values.size = work->ids.size = work->where.size = work->made.size = work->hashes.size = 0;
    work->unnamed_count = 0;
    enum verdict found = read_lines(range, work, body, at, limits);
    name_all(range, work);
    return hash_values(work) ? found : NO_MEMORY;
}

void work_free(struct work *work)
{
    tape_free(&work->tape);
    free(work->places.of_field);
    buffer_free(&work->values);
    buffer_free(&work->ids);
    buffer_free(&work->where);
    buffer_free(&work->made);
    buffer_free(&work->hashes);
}
