/* averages: records of average importance, and the place of the newest per piece in the log.
 *
 *   code    0: less than 2^-32; else 1 .. 65535 on a log scale, 65535 is all of it
 *   record  per piece: a u16 per layer and row; the newest counts, a checkpoint copies only that
 *   notes   records of no piece (id 0): [namespace u32][words of the plugin], numbered; the
 *           highest number of a kind counts, a checkpoint copies only that
 *   places  piece -> offset of its newest record: 16 bytes for pieces that have one, in a table at
 *           most half full
 *
 * Invariants: a place is that of the last record of its piece in the log.
 * Limits: keeps no codes (callbacks receive them); frees no place before the next checkpoint.
 * Threads: put: an executor's; places: the log lock, or open. */
#include "store/internal.h"

#define PLACES_MIN 64u

_Static_assert(SC_STORE_AVERAGE_BYTES_MAX == SC_STORE_QUANT_BYTES_MAX, "as the record takes them");
_Static_assert(2 * (SC_STORE_NOTE_HEAD + SC_STORE_NOTE_WORDS_MAX) <= SC_STORE_QUANT_BYTES_MAX,
               "a note stands in one record");

/* ---- Places --------------------------------------------------------------------------------- */

/* Returns the piece's place, or the free one for it, which exists. */
static struct sc_store_average_place *place_find(const struct sc_store_averages *averages,
                                                 uint64_t piece)
{
    uint64_t mask = averages->room - 1, at = (piece * 0x9E3779B97F4A7C15ull >> 32) & mask;
    while (averages->places[at].piece != 0 && averages->places[at].piece != piece)
        at = (at + 1) & mask;
    return &averages->places[at];
}

bool sc_store_averages_reserve(struct sc_store_averages *averages, uint64_t more,
                               struct sc_alloc *alloc)
{
    struct sc_store_averages grown = *averages;
    if (averages->count + more <= averages->room / 2)
        return true;
    grown.room = averages->room > 0 ? averages->room : PLACES_MIN;
    while (averages->count + more > grown.room / 2)
        grown.room *= 2;
    grown.places = sc_alloc_array(alloc, grown.room, sizeof(*grown.places));
    if (grown.places == NULL)
        return false;
    for (uint64_t i = 0; i < averages->room; i++)
        if (averages->places[i].piece != 0)
            *place_find(&grown, averages->places[i].piece) = averages->places[i];
    sc_alloc_free(alloc, averages->places);
    *averages = grown;
    return true;
}

void sc_store_averages_note(struct sc_store_averages *averages, uint64_t piece, uint64_t offset,
                            uint64_t bytes)
{
    struct sc_store_average_place *place = place_find(averages, piece);
    averages->count += place->piece == 0;
    averages->all_bytes += bytes;
    averages->last_bytes += bytes - place->bytes;
    *place = (struct sc_store_average_place){(uint32_t)piece, (uint32_t)bytes, offset};
}

bool sc_store_averages_is_last(const struct sc_store_averages *averages, uint64_t piece,
                               uint64_t offset)
{
    if (averages->room == 0 || piece == 0)
        return false;
    const struct sc_store_average_place *place = place_find(averages, piece);
    return place->piece == piece && place->offset == offset;
}

void sc_store_averages_done(struct sc_store_averages *averages, struct sc_alloc *alloc)
{
    sc_alloc_free(alloc, averages->places);
    *averages = (struct sc_store_averages){0};
}

/* ---- Notes ---------------------------------------------------------------------------------- */

uint64_t sc_store_note_space(const struct sc_store_record_average *record)
{
    if (record->quant_bytes <= SC_STORE_NOTE_HEAD * 2)
        return 0;
    return record->codes[0] | (uint64_t)record->codes[1] << 8 | (uint64_t)record->codes[2] << 16 |
           (uint64_t)record->codes[3] << 24;
}

static struct sc_store_noted *noted_of_kind(struct sc_store_shape *shape, uint32_t kind)
{
    return kind > 0 && kind <= SC_STORE_NOTE_KINDS ? &shape->notes[kind - 1] : NULL;
}

struct sc_store_noted *sc_store_noted_of(struct sc_store_shape *shape,
                                         const struct sc_store_record_average *record)
{
    return noted_of_kind(shape, record->codes[2 * SC_STORE_NOTE_HEAD + 1]);
}

bool sc_store_note_is_last(const struct sc_store_spaces *spaces, const uint8_t *payload,
                           uint64_t bytes)
{
    struct sc_store_record record = {.type = SC_STORE_RECORD_AVERAGE};
    uint64_t space =
        sc_store_record_decode(payload, bytes, &record) ? sc_store_note_space(&record.average) : 0;
    struct sc_store_shape *shape = sc_store_space_find(spaces, space);
    if (shape == NULL || shape->is_leaving)
        return false;
    const struct sc_store_noted *noted = sc_store_noted_of(shape, &record.average);
    return noted != NULL && record.average.requests == noted->serial;
}

void sc_store_note_add(struct sc_store_averages *averages, struct sc_store_noted *noted,
                       uint64_t serial, uint64_t bytes)
{
    averages->all_bytes += bytes;
    if (noted == NULL)
        return;
    uint64_t before = noted->bytes < averages->last_bytes ? noted->bytes : 0;
    averages->last_bytes += bytes - before;
    *noted = (struct sc_store_noted){.serial = serial, .bytes = bytes};
}

/* Kinds are numbered together: for a version that knows only one, the newest of all counts. */
static uint64_t serial_next(const struct sc_store_shape *shape)
{
    uint64_t serial = 0;
    for (uint32_t i = 0; i < SC_STORE_NOTE_KINDS; i++)
        serial = shape->notes[i].serial > serial ? shape->notes[i].serial : serial;
    return serial + 1;
}

/* Log lock held. */
static spec_status note_append(struct sc_store *store, uint16_t *words, uint64_t count,
                               struct spec_error *reterr)
{
    struct sc_store_append append;
    uint32_t space = atomic_load(&store->log.space_id);
    struct sc_store_shape *shape = sc_store_space_find(&store->log.spaces, space);
    uint64_t serial = serial_next(shape);
    if (serial > UINT32_MAX) /* impossible in a valid log */
        return sc_fail(reterr, SPEC_E_CORRUPT, "%s/log: notes have no number left", store->dir);
    words[0] = (uint16_t)space;
    words[1] = (uint16_t)(space >> 16);
    sc_store_append_begin(store, &append);
    sc_store_append_frame(&append);
    sc_store_record_encode_average(&append.writer, 0, serial, words, SC_STORE_NOTE_HEAD + count);
    spec_status status = sc_store_append_commit(store, &append, reterr);
    if (status == SPEC_OK)
        sc_store_note_add(&store->log.averages,
                          noted_of_kind(shape, words[SC_STORE_NOTE_HEAD] >> 8), serial,
                          sc_store_frame_bytes(store->log.journal.buffer));
    return status;
}

bool sc_store_takes_notes(const struct sc_store *store)
{
    return atomic_load(&store->log.space_id) != 0;
}

spec_status sc_store_note_put(struct sc_store *store, uint16_t *words, uint64_t count,
                              struct spec_error *reterr)
{
    uint64_t bytes = sc_store_record_bytes_average(SC_STORE_NOTE_HEAD + count);
    uint32_t kind = words[SC_STORE_NOTE_HEAD] >> 8;
    if (!sc_store_can_store(store))
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "%s is another's: only its writer stores",
                       store->dir);
    if (count == 0 || count > SC_STORE_NOTE_WORDS_MAX)
        return sc_fail(reterr, SPEC_E_INVALID, "a note: %" PRIu64 " words, 1 .. %u expected", count,
                       SC_STORE_NOTE_WORDS_MAX);
    if (kind == 0 || kind > SC_STORE_NOTE_KINDS)
        return sc_fail(reterr, SPEC_E_INVALID, "a note: kind %u, 1 .. %u expected", kind,
                       SC_STORE_NOTE_KINDS);
    if (atomic_load(&store->log.space_id) == 0)
        return SPEC_OK;
    if (!sc_store_log_reserve(store, bytes))
        return sc_fail(reterr, SPEC_E_NO_SPACE, "%s: no room for a note in disk_bytes", store->dir);
    spec_status status;
    sc_store_log_enter(store);
    do {
        status = note_append(store, words, count, reterr);
    } while (sc_store_log_again(store, &status, reterr));
    sc_store_log_leave(store);
    sc_store_log_unreserve(store, bytes);
    if (status == SPEC_E_IO || status == SPEC_E_NO_SPACE)
        sc_store_pause(store, status, "writing the log");
    return status;
}

/* ---- Recording ------------------------------------------------------------------------------ */

static uint64_t code_count(const struct sc_store *store, const struct sc_store_average *average)
{
    return (uint64_t)store->shape.layer_count * average->row_count;
}

/* Returns the piece if it is live and of this connector's namespace. Hold the log lock, or check
 * again with it. */
static const struct sc_store_piece_entry *piece_of(const struct sc_store *store, uint64_t piece)
{
    const struct sc_store_piece_entry *entry = sc_store_table_live(&store->table, piece);
    if (entry == NULL || sc_store_table_extent(&store->table, entry->extent)->space !=
                             atomic_load(&store->log.space_id))
        return NULL;
    return entry;
}

static spec_status averages_check(const struct sc_store *store,
                                  const struct sc_store_average *averages, uint64_t count,
                                  struct spec_error *reterr)
{
    for (uint64_t i = 0; i < count; i++) {
        const struct sc_store_piece_entry *entry = piece_of(store, averages[i].piece);
        if (entry == NULL)
            continue;
        if (averages[i].row_count != entry->row_count || averages[i].requests == 0)
            return sc_fail(
                reterr, SPEC_E_INVALID,
                "averages of piece %" PRIu64 ": %" PRIu32 " rows of %u, %" PRIu32 " requests",
                averages[i].piece, averages[i].row_count, entry->row_count, averages[i].requests);
        if (2 * code_count(store, &averages[i]) > SC_STORE_AVERAGE_BYTES_MAX)
            return sc_fail(reterr, SPEC_E_INVALID,
                           "averages of piece %" PRIu64 ": %" PRIu32 " rows of %" PRIu32
                           " layers exceed a record's %u bytes",
                           averages[i].piece, averages[i].row_count, store->shape.layer_count,
                           SC_STORE_AVERAGE_BYTES_MAX);
    }
    return SPEC_OK;
}

/* Records the places of an append that was written. Log lock held. */
static void append_note(struct sc_store *store, const struct sc_store_average *averages,
                        uint64_t count, uint64_t begin)
{
    for (uint64_t i = 0, at = 0; i < count; i++) {
        if (piece_of(store, averages[i].piece) == NULL)
            continue;
        uint64_t bytes = sc_store_frame_bytes(store->log.journal.buffer + at);
        sc_store_averages_note(&store->log.averages, averages[i].piece, begin + at, bytes);
        at += bytes;
    }
}

/* Appends the first averages that fit; ret_count of them. Log lock held. */
static spec_status put_some(struct sc_store *store, const struct sc_store_average *averages,
                            uint64_t count, uint64_t *ret_count, struct spec_error *reterr)
{
    struct sc_store_append append;
    uint64_t begin = store->log.journal.file_end, i = 0;
    sc_store_append_begin(store, &append);
    for (; i < count; i++) {
        uint64_t codes = code_count(store, &averages[i]);
        if (piece_of(store, averages[i].piece) == NULL)
            continue; /* dropped meanwhile */
        if (append.writer.capacity - append.writer.used < sc_store_record_bytes_average(codes))
            break;
        sc_store_append_frame(&append);
        sc_store_record_encode_average(&append.writer, averages[i].piece, averages[i].requests,
                                       averages[i].codes, codes);
    }
    *ret_count = i;
    if (append.writer.used == 0)
        return SPEC_OK;
    if (!sc_store_averages_reserve(&store->log.averages, i, store->params.alloc))
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "places of averages");
    spec_status status = sc_store_append_commit(store, &append, reterr);
    if (status == SPEC_OK)
        append_note(store, averages, i, begin);
    return status;
}

/* Returns what one append of the first averages may take. */
static uint64_t append_bytes(const struct sc_store *store, const struct sc_store_average *averages,
                             uint64_t count)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < count && bytes < SC_STORE_WINDOW_BYTES; i++)
        if (piece_of(store, averages[i].piece) != NULL)
            bytes += sc_store_record_bytes_average(code_count(store, &averages[i]));
    return bytes < SC_STORE_WINDOW_BYTES ? bytes : SC_STORE_WINDOW_BYTES;
}

spec_status sc_store_average_put(struct sc_store *store, const struct sc_store_average *averages,
                                 uint64_t count, struct spec_error *reterr)
{
    if (!sc_store_can_store(store))
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "%s is another's: only its writer stores",
                       store->dir);
    spec_status status = averages_check(store, averages, count, reterr);
    for (uint64_t done = 0, now; done < count && status == SPEC_OK; done += now) {
        uint64_t bytes = append_bytes(store, averages + done, count - done);
        if (!sc_store_log_reserve(store, bytes))
            return sc_fail(reterr, SPEC_E_NO_SPACE, "%s: no room for averages in disk_bytes",
                           store->dir);
        sc_store_log_enter(store);
        do {
            status = put_some(store, averages + done, count - done, &now, reterr);
        } while (sc_store_log_again(store, &status, reterr));
        sc_store_log_leave(store);
        sc_store_log_unreserve(store, bytes);
        if (status == SPEC_E_IO || status == SPEC_E_NO_SPACE)
            sc_store_pause(store, status, "writing the log");
    }
    return status;
}
