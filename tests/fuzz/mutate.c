/* Logs made from a seed, and bent; see mutate.h.
 *
 * Holds, Threads, Tests: tests/fuzz/mutate.h. */
#include "tests/fuzz/mutate.h"

#include "store/log/record_decode.h"
#include "store/log/record_format.h"
#include "store/rows/quant_blocks.h"
#include "store/rows/row_permutation.h"
#include "store/log/where.h"

#include <msgpack.h>
#include <string.h>

#define UNITS_MAX   400u
#define EXTENTS_MAX 24u
#define PIECES_MAX  96u
#define CHUNK       64u  /* of the targets' configuration */
#define PAGES       256u /* of their segment */
#define UINTS_MAX   256u

static uint64_t next(uint64_t *random)
{
    uint64_t x = (*random += UINT64_C(0x9e3779b97f4a7c15));
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint64_t below(uint64_t *random, uint64_t bound)
{
    return bound > 0 ? next(random) % bound : 0;
}

/* ---- Making ---------------------------------------------------------------------------------- */

struct make {
    const struct fuzz_form *form;
    uint64_t random;
    uint8_t *bytes;
    size_t used, room;
    struct sc_store_shape shape;
    uint64_t extent_id, piece_id, page, epoch;
    struct {
        uint64_t id, rows, position;
        bool has_quant, has_probes;
    } extents[EXTENTS_MAX];
    struct {
        uint64_t id, rows;
    } pieces[PIECES_MAX];
    struct {
        uint64_t extent, piece; /* left free; piece 0: its last piece was left out */
        uint64_t position;
    } lefts[EXTENTS_MAX];
    uint32_t extent_count, piece_count, left_count;
};

static uint8_t payload[SC_STORE_PAYLOAD_BYTES_MAX];

static struct sc_store_writer payload_begin(void)
{
    return (struct sc_store_writer){.bytes = payload, .capacity = sizeof(payload)};
}

/* Behind what is there; nothing, when it does not fit. */
static void unit_put(struct make *make, uint8_t what, const uint8_t *data, uint64_t count)
{
    uint32_t head = make->form->head_bytes;
    if (count > UINT16_MAX || make->room - make->used < head + count)
        return;
    uint8_t *at = make->bytes + make->used;
    at[0] = what;
    at[head - 2] = (uint8_t)count;
    at[head - 1] = (uint8_t)(count >> 8);
    memcpy(at + head, data, count);
    make->used += head + count;
}

static void payload_put(struct make *make, const struct sc_store_writer *writer)
{
    unit_put(make, 1, writer->bytes, writer->used);
    if (make->form->head_bytes == 3 && below(&make->random, 4) == 0)
        unit_put(make, 5, payload, 0); /* a poll */
}

static void make_head(struct make *make)
{
    struct sc_store_writer writer = payload_begin();
    const struct sc_store_record_head head = {
        .numbering = 5, .piece_next = make->piece_id, .extent_next = make->extent_id};
    sc_store_record_encode_head(&writer, &head);
    payload_put(make, &writer);
    writer = payload_begin();
    sc_store_record_encode_space(&writer, 1, make->form->space);
    payload_put(make, &writer);
    struct sc_store_namespace other = *make->form->space;
    other.digest[1] ^= 1;
    other.layout = SC_STORE_SPLIT;
    writer = payload_begin();
    sc_store_record_encode_space(&writer, 2, &other);
    payload_put(make, &writer);
}

/* Pages for two layers of `stride`, in one part or in two. */
static uint32_t make_parts(struct make *make, uint64_t stride, struct sc_store_part parts[2])
{
    uint64_t pages = (2 * stride + 4095) / 4096 + 1;
    if (make->page + pages > PAGES)
        make->page = below(&make->random, PAGES / 2);
    bool is_one = below(&make->random, 3) > 0;
    parts[0] = (struct sc_store_part){.offset = make->page * 4096, .layer_count = is_one ? 2 : 1};
    parts[1] = (struct sc_store_part){
        .offset = (make->page + (stride + 4095) / 4096) * 4096, .layer_first = 1, .layer_count = 1};
    make->page += pages;
    return is_one ? 1 : 2;
}

static void make_piece(struct make *make, const struct sc_store_piece *piece)
{
    struct sc_store_writer writer = payload_begin();
    sc_store_record_encode_piece(&writer, piece);
    payload_put(make, &writer);
    if (make->piece_count == PIECES_MAX)
        return;
    make->pieces[make->piece_count].id = piece->id;
    make->pieces[make->piece_count++].rows = piece->row_count;
}

/* false: the last one was left out. */
static bool make_pieces(struct make *make, uint64_t position, uint64_t rows)
{
    static uint32_t tokens[CHUNK];
    struct sc_store_mark mark = {.token = position};
    bool is_left_out = false;
    for (uint64_t row = 0, count; row < rows; row += count) {
        uint64_t first = position + row, chunk = first / CHUNK * CHUNK;
        count = chunk + CHUNK - first < rows - row ? chunk + CHUNK - first : rows - row;
        is_left_out = below(&make->random, 6) == 0;
        bool has_mark = below(&make->random, 6) == 0;
        if (is_left_out)
            continue;
        struct sc_store_piece piece = {.id = make->piece_id++,
                                       .extent = make->extent_id,
                                       .extent_row = (uint32_t)row,
                                       .row_count = (uint32_t)count,
                                       .first_position = first,
                                       .chunk_first = chunk,
                                       .mark_count = has_mark && row == 0,
                                       .tokens = tokens,
                                       .marks = &mark};
        if (count > 1 && below(&make->random, 5) == 0)
            piece.skip = (uint32_t)below(&make->random, count);
        memset(piece.hash, (int)piece.id, sizeof(piece.hash));
        make_piece(make, &piece);
    }
    return !is_left_out;
}

/* Its record, with the id that comes next, or one that was left free. */
static void make_extent_record(struct make *make, uint64_t id, uint64_t rows, bool has_probes,
                               bool leaves_ids)
{
    struct sc_store_part parts[2];
    struct sc_store_shape shape = make->shape;
    uint64_t space = below(&make->random, 6) == 0 ? 2 : 1;
    shape.tags_per_row = space == 2 ? 2 : 1;
    struct sc_store_place place = sc_store_shape_place(&shape, has_probes ? 18 : 0, rows);
    const struct sc_store_record_extent extent = {.space = space,
                                                  .copy = next(&make->random),
                                                  .row_count = rows,
                                                  .probe_row_bytes = has_probes ? 18 : 0,
                                                  .probe_tag_offset = place.probe_tag_offset,
                                                  .tag_offset = place.tag_offset,
                                                  .row_offset = place.row_offset,
                                                  .stride = place.stride,
                                                  .leaves_ids = leaves_ids,
                                                  .part_count =
                                                      make_parts(make, place.stride, parts),
                                                  .parts = parts};
    struct sc_store_writer writer = payload_begin();
    sc_store_record_encode_extent(&writer, id, &extent);
    payload_put(make, &writer);
}

static void extent_note(struct make *make, uint64_t id, uint64_t rows, uint64_t position,
                        bool has_probes)
{
    if (make->extent_count == EXTENTS_MAX)
        return;
    make->extents[make->extent_count].id = id;
    make->extents[make->extent_count].rows = rows;
    make->extents[make->extent_count].position = position;
    make->extents[make->extent_count++].has_probes = has_probes;
}

static void make_extent(struct make *make)
{
    uint64_t rows = 1 + below(&make->random, 200), position = below(&make->random, 300);
    bool has_probes = below(&make->random, 2) == 0, leaves_ids = below(&make->random, 3) == 0;
    if (make->extent_count == EXTENTS_MAX)
        return;
    make_extent_record(make, make->extent_id, rows, has_probes, leaves_ids);
    bool has_last = make_pieces(make, position, rows);
    extent_note(make, make->extent_id++, rows, position, has_probes);
    if (!leaves_ids || make->left_count == EXTENTS_MAX)
        return;
    make->lefts[make->left_count].extent = make->extent_id++;
    make->lefts[make->left_count].piece = has_last ? make->piece_id++ : 0;
    make->lefts[make->left_count++].position = (position + rows - 1) / CHUNK * CHUNK;
}

/* What took ids that were left free; now and then it is void before, or comes twice. */
static void make_late(struct make *make)
{
    static uint32_t tokens[CHUNK];
    uint32_t i = (uint32_t)below(&make->random, make->left_count);
    bool has_probes = below(&make->random, 2) == 0, is_next = make->lefts[i].piece == 0;
    uint64_t rows = 1 + below(&make->random, CHUNK);
    struct sc_store_piece piece = {.id = is_next ? make->piece_id++ : make->lefts[i].piece,
                                   .extent = make->lefts[i].extent,
                                   .row_count = (uint32_t)rows,
                                   .first_position = make->lefts[i].position,
                                   .chunk_first = make->lefts[i].position,
                                   .tokens = tokens};
    memset(piece.hash, (int)piece.id, sizeof(piece.hash));
    if (below(&make->random, 8) == 0) {
        struct sc_store_writer writer = payload_begin();
        sc_store_record_encode_drop(&writer, piece.id, next(&make->random) >> 40);
        payload_put(make, &writer);
    }
    make_extent_record(make, piece.extent, rows, has_probes, below(&make->random, 4) == 0);
    make_piece(make, &piece);
    extent_note(make, piece.extent, rows, piece.first_position, has_probes);
    if (below(&make->random, 4) > 0)
        make->lefts[i] = make->lefts[--make->left_count];
}

static void pack_uint(msgpack_packer *packer, const char *key, uint64_t value)
{
    msgpack_pack_str_with_body(packer, key, strlen(key));
    msgpack_pack_uint64(packer, value);
}

/* An annex of a retired kind, as earlier versions wrote it: a copy of a third of the rows. */
static void make_retired(struct make *make, uint32_t of)
{
    static const char bits[2 * SC_STORE_ROWS_MAX / 8];
    struct sc_store_part parts[2];
    struct sc_store_writer writer = payload_begin();
    msgpack_packer packer;
    uint64_t rows = make->extents[of].rows, count = (rows + 2) / 3, copy = next(&make->random);
    uint64_t stride = sc_store_up(count * make->shape.row_bytes, SC_IO_PAGE_BYTES);
    uint32_t part_count = make_parts(make, stride, parts);
    msgpack_packer_init(&packer, &writer, sc_store_writer_put);
    msgpack_pack_map(&packer, 9);
    pack_uint(&packer, "v", SC_STORE_RECORD_VERSION);
    pack_uint(&packer, "t", SC_STORE_RECORD_SECTION);
    pack_uint(&packer, "id", make->extents[of].id);
    pack_uint(&packer, "kind", SC_STORE_SECTION_RETIRED);
    pack_uint(&packer, "copy", copy);
    pack_uint(&packer, "hrows", count);
    msgpack_pack_str_with_body(&packer, "hot", 3);
    msgpack_pack_bin_with_body(&packer, bits, 2 * ((rows + 63) / 64) * 8);
    pack_uint(&packer, "stride", stride);
    msgpack_pack_str_with_body(&packer, "parts", 5);
    msgpack_pack_array(&packer, part_count);
    for (uint32_t i = 0; i < part_count; i++) {
        msgpack_pack_array(&packer, 4);
        msgpack_pack_uint32(&packer, parts[i].segment);
        msgpack_pack_uint64(&packer, parts[i].offset);
        msgpack_pack_uint32(&packer, parts[i].layer_first);
        msgpack_pack_uint32(&packer, parts[i].layer_count);
    }
    payload_put(make, &writer);
}

/* An edition with rows backwards; now and then its slots are none, or not all are there. */
static void make_order(struct make *make, uint32_t of)
{
    static uint16_t slots[2 * SC_STORE_ROWS_MAX];
    struct sc_store_part parts[2];
    uint64_t rows = make->extents[of].rows, copy = next(&make->random);
    uint64_t bend = below(&make->random, 6);
    for (uint32_t layer = 0; layer < 2; layer++)
        for (uint64_t i = 0; i < rows; i++)
            sc_store_permutation_of(slots, rows, layer)[i] =
                (uint16_t)(bend == 1 && i == rows / 2 ? 0 : rows - 1 - i);
    struct sc_store_writer writer = payload_begin();
    sc_store_record_encode_permutation(&writer, make->extents[of].id, copy, 0, slots, rows,
                                       bend == 2 ? 1 : 2);
    payload_put(make, &writer);
    uint64_t probe_bytes = make->extents[of].has_probes ? 18 : 0;
    struct sc_store_place place = sc_store_shape_place(&make->shape, probe_bytes, rows);
    struct sc_store_record_extent derived_section = {.is_order = true,
                                                     .copy = copy + (bend == 3),
                                                     .probe_row_bytes = probe_bytes,
                                                     .probe_tag_offset = place.probe_tag_offset,
                                                     .tag_offset = place.tag_offset,
                                                     .row_offset = place.row_offset,
                                                     .stride = place.stride,
                                                     .permuted_at_ns = below(&make->random, 2)
                                                                       << 60,
                                                     .parts = parts};
    derived_section.part_count = make_parts(make, place.stride, parts);
    writer = payload_begin();
    sc_store_record_encode_section(&writer, make->extents[of].id, &derived_section);
    payload_put(make, &writer);
}

static void make_section(struct make *make, uint32_t of, bool is_quant)
{
    struct sc_store_part parts[2];
    uint64_t rows = make->extents[of].rows, position = make->extents[of].position;
    uint64_t slots = (position + rows - 1) / CHUNK - position / CHUNK + 1;
    uint64_t probe_tags = sc_store_up(rows * 18, 8);
    uint64_t stride = is_quant ? 2 * slots * 32 + rows * 16 : probe_tags + rows * 8;
    stride = sc_store_up(stride, 64);
    struct sc_store_record_extent derived_section = {.copy = next(&make->random),
                                                     .probe_row_bytes = is_quant ? 0 : 18,
                                                     .probe_tag_offset = is_quant ? 0 : probe_tags,
                                                     .stride = stride,
                                                     .parts = parts};
    if (is_quant)
        derived_section.codec_shape = (struct sc_store_codec_shape){
            .bits_k = 4, .bits_v = 2, .scale_bytes = 16, .k_row_bytes = 8, .v_row_bytes = 8};
    derived_section.part_count = make_parts(make, derived_section.stride, parts);
    struct sc_store_writer writer = payload_begin();
    sc_store_record_encode_section(&writer, make->extents[of].id, &derived_section);
    payload_put(make, &writer);
    make->extents[of].has_quant = make->extents[of].has_quant || is_quant;
}

/* Earlier versions wrote it of an extent of which codes stayed. */
static void put_rows_gone(struct sc_store_writer *writer, uint64_t extent, uint64_t at_ns)
{
    msgpack_packer packer;
    static const char *const KEYS[] = {"v", "t", "id", "at", "bitsk", "bitsv"};
    const uint64_t values[] = {
        SC_STORE_RECORD_VERSION, SC_STORE_RECORD_ROWS_GONE, extent, at_ns, 4, 2};
    msgpack_packer_init(&packer, writer, sc_store_writer_put);
    msgpack_pack_map(&packer, 6);
    for (uint32_t i = 0; i < 6; i++) {
        msgpack_pack_str(&packer, strlen(KEYS[i]));
        msgpack_pack_str_body(&packer, KEYS[i], strlen(KEYS[i]));
        msgpack_pack_uint64(&packer, values[i]);
    }
}

/* Of what is there: a drop, an average, an epoch, rows that go. */
static void make_later(struct make *make, uint32_t what)
{
    struct sc_store_writer writer = payload_begin();
    uint32_t piece = (uint32_t)below(&make->random, make->piece_count);
    uint32_t extent = (uint32_t)below(&make->random, make->extent_count);
    static uint16_t codes[2 * CHUNK];
    if (what == 0)
        sc_store_record_encode_drop(&writer, make->pieces[piece].id, next(&make->random) >> 40);
    else if (what == 1 && below(&make->random, 3) == 0) { /* of guesses */
        codes[0] = (uint16_t)below(&make->random, 3);
        sc_store_record_encode_average(&writer, 0, 1 + below(&make->random, 9), codes,
                                       1 + below(&make->random, 40));
    } else if (what == 1)
        sc_store_record_encode_average(&writer, make->pieces[piece].id, 3, codes,
                                       2 * make->pieces[piece].rows);
    else if (what == 2)
        sc_store_record_encode_epoch(&writer, 1 + below(&make->random, 2), ++make->epoch, 9);
    else
        put_rows_gone(&writer, make->extents[extent].id, below(&make->random, 2) << 60);
    payload_put(make, &writer);
}

size_t fuzz_log_make(const struct fuzz_form *form, uint64_t seed, uint8_t *bytes, size_t room)
{
    if (form->make != NULL)
        return form->make(seed, bytes, room);
    struct make make = {.form = form,
                        .random = seed,
                        .bytes = bytes,
                        .room = room,
                        .extent_id = 1 + below(&seed, 3),
                        .piece_id = 1 + below(&seed, 2) * 5000};
    sc_store_shape_set(&make.shape, form->space);
    make_head(&make);
    uint64_t steps = 1 + below(&make.random, 24);
    for (uint64_t i = 0; i < steps; i++) {
        uint64_t what = below(&make.random, 16);
        if (make.extent_count == 0 || make.piece_count == 0 || what < 6)
            make_extent(&make);
        else if (make.left_count > 0 && below(&make.random, 3) == 0)
            make_late(&make);
        else if (what < 9)
            make_section(&make, (uint32_t)below(&make.random, make.extent_count), what % 2 == 0);
        else if (what < 10 && below(&make.random, 2) == 0)
            make_order(&make, (uint32_t)below(&make.random, make.extent_count));
        else if (what < 10)
            make_retired(&make, (uint32_t)below(&make.random, make.extent_count));
        else if (what < 15 || below(&make.random, 4) == 0)
            make_later(&make, what < 12 ? 0 : what == 12 ? 1 : 3);
        else
            make_later(&make, 2);
    }
    return make.used;
}

/* ---- Bending --------------------------------------------------------------------------------- */

struct units {
    struct {
        size_t at, bytes; /* of the payload */
    } of[UNITS_MAX];
    uint32_t count;
};

/* Those that bring a payload. */
static void units_find(const struct fuzz_form *form, const uint8_t *bytes, size_t count,
                       struct units *ret_units)
{
    uint32_t head = form->head_bytes;
    ret_units->count = 0;
    for (size_t at = 0; at + head <= count && ret_units->count < UNITS_MAX;) {
        bool takes = head == 2 || bytes[at] < 2 || bytes[at] == 3;
        size_t size = takes ? bytes[at + head - 2] | (size_t)bytes[at + head - 1] << 8 : 0;
        at += head;
        size = size < count - at ? size : count - at;
        if (takes && size > 0) {
            ret_units->of[ret_units->count].at = at;
            ret_units->of[ret_units->count++].bytes = size;
        }
        at += size;
    }
}

struct value {
    size_t at, bytes; /* of all of it */
    uint64_t value;
    char kind; /* 'u', 's', 'b' */
};

/* Integers and strings of a payload, those in arrays and keys too. */
static uint32_t values_find(const uint8_t *bytes, size_t count, struct value *ret_values)
{
    struct sc_store_cursor cursor = {bytes, bytes + count, false};
    uint32_t found = 0;
    while (found < UINTS_MAX && cursor.at < cursor.end && !cursor.bad) {
        size_t at = (size_t)(cursor.at - bytes);
        uint64_t size;
        char kind = sc_store_cursor_head(&cursor, &size);
        if (kind == 's' || kind == 'b' || kind == 'o')
            (void)sc_store_cursor_take(&cursor, size);
        if (!cursor.bad && (kind == 'u' || kind == 's' || kind == 'b'))
            ret_values[found++] = (struct value){at, (size_t)(cursor.at - bytes) - at, size, kind};
    }
    return found;
}

/* Bytes [at, + from) of a unit's payload become `to` others. false: there is no room. */
static bool splice(uint8_t *bytes, size_t *count, size_t room, size_t payload_at,
                   size_t payload_bytes, size_t at, size_t from, const uint8_t *to, size_t to_bytes)
{
    size_t size = payload_bytes - from + to_bytes, end = payload_at + at + from;
    if (size > UINT16_MAX || *count - from + to_bytes > room)
        return false;
    memmove(bytes + payload_at + at + to_bytes, bytes + end, *count - end);
    memcpy(bytes + payload_at + at, to, to_bytes);
    bytes[payload_at - 2] = (uint8_t)size;
    bytes[payload_at - 1] = (uint8_t)(size >> 8);
    *count = *count - from + to_bytes;
    return true;
}

static uint64_t number_bent(uint64_t *random, uint64_t value, uint64_t other)
{
    static const uint64_t NUMBERS[] = {0,
                                       1,
                                       2,
                                       7,
                                       8,
                                       16,
                                       63,
                                       64,
                                       65,
                                       128,
                                       4095,
                                       4096,
                                       8192,
                                       16383,
                                       16384,
                                       16385,
                                       1u << 20,
                                       (1u << 24),
                                       UINT32_MAX,
                                       1ull << 32,
                                       1ull << 40,
                                       (1ull << 40) - 8,
                                       1ull << 48,
                                       (1ull << 48) + 1,
                                       1ull << 63,
                                       UINT64_MAX,
                                       UINT64_MAX - 1,
                                       UINT64_MAX - 4095};
    switch (below(random, 8)) {
    case 0:
        return value + 1;
    case 1:
        return value - 1;
    case 2:
        return other;
    case 3:
        return value + other;
    case 4:
        return value ^ UINT64_C(1) << below(random, 64);
    case 5:
        return value + 8 * (below(random, 1024) - 512);
    case 6:
        return below(random, 2 * value + 2);
    default:
        return NUMBERS[below(random, sizeof(NUMBERS) / sizeof(NUMBERS[0]))];
    }
}

/* A value of a payload. */
static bool value_bend(uint64_t *random, uint8_t *bytes, size_t *count, size_t room, size_t at,
                       size_t size)
{
    static struct value values[UINTS_MAX];
    uint32_t found = values_find(bytes + at, size, values);
    if (found == 0)
        return false;
    const struct value *value = &values[below(random, found)];
    const struct value *other = &values[below(random, found)];
    uint8_t to[9] = {0xCF};
    if (value->kind == 'u') {
        uint64_t number = number_bent(random, value->value, other->value);
        for (uint32_t i = 0; i < 8; i++)
            to[1 + i] = (uint8_t)(number >> (56 - 8 * i));
        bool is_short = number <= 0x7F && below(random, 4) > 0;
        return splice(bytes, count, room, at, size, value->at, value->bytes, is_short ? to + 8 : to,
                      is_short ? 1 : 9);
    }
    uint64_t step = UINT64_C(1) << below(random, 6);
    if (below(random, 3) > 0 || value->bytes <= step + 5) { /* a byte of it, its head too */
        bytes[at + value->at + below(random, value->bytes)] ^= (uint8_t)(1u << below(random, 8));
        return true;
    }
    uint64_t length =
        value->value > step && below(random, 2) == 0 ? value->value - step : value->value + step;
    static uint8_t longer[SC_STORE_PAYLOAD_BYTES_MAX];
    longer[0] = value->kind == 'b' ? 0xC5 : 0xDA;
    longer[1] = (uint8_t)(length >> 8);
    longer[2] = (uint8_t)length;
    if (length > UINT16_MAX / 2)
        return false;
    memset(longer + 3, 1, length);
    uint64_t kept = length < value->value ? length : value->value;
    memcpy(longer + 3, bytes + at + value->at + (value->bytes - value->value), kept);
    return splice(bytes, count, room, at, size, value->at, value->bytes, longer, length + 3);
}

/* A record is left out, doubled, or put where another stands. */
static bool unit_bend(const struct fuzz_form *form, uint64_t *random, uint8_t *bytes, size_t *count,
                      size_t room, const struct units *units)
{
    static uint8_t moved[UINT16_MAX + 3];
    uint32_t from = (uint32_t)below(random, units->count);
    uint32_t to = (uint32_t)below(random, units->count);
    size_t begin = units->of[from].at - form->head_bytes;
    size_t size = units->of[from].bytes + form->head_bytes;
    size_t place = units->of[to].at - form->head_bytes;
    uint64_t how = below(random, 3);
    memcpy(moved, bytes + begin, size);
    if (how < 2) { /* it goes */
        memmove(bytes + begin, bytes + begin + size, *count - begin - size);
        *count -= size;
        if (how == 0)
            return true;
        place = place > begin ? place - size : place;
    }
    if (*count + size > room)
        return false;
    memmove(bytes + place + size, bytes + place, *count - place);
    memcpy(bytes + place, moved, size);
    *count += size;
    return true;
}

size_t fuzz_log_bend(const struct fuzz_form *form, uint64_t seed, uint8_t *bytes, size_t count,
                     size_t room)
{
    static struct units units;
    uint64_t random = seed, times = 1 + below(&random, 6);
    for (uint64_t i = 0; i < times; i++) {
        units_find(form, bytes, count, &units);
        if (units.count == 0)
            return count;
        uint32_t unit = (uint32_t)below(&random, units.count);
        if (below(&random, 4) == 0)
            (void)unit_bend(form, &random, bytes, &count, room, &units);
        else
            (void)value_bend(&random, bytes, &count, room, units.of[unit].at, units.of[unit].bytes);
    }
    return count;
}
