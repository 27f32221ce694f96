/* reader_rows: verifies the rows of a load's front slot and returns them in bites.
 *
 *   whole ranges   [tags][row row row ...]     in the frame; a split layout's K and V are joined,
 *                                              returned apart, or moved to the caller's sink
 *   gather         [unit: rows][unit] ...      tags are a selector's; runs of wanted rows
 *
 * Invariants: returned rows were verified against namespace, piece, copy, layer, part and position.
 * Threads: the consumer's, without the lock.
 * Tests: tests/unit/store/test_store.c, test_gather.c, test_host_tier_slab_slots.c,
 * test_tiers_twin.c */
#include "store/read/reader.h"
#include "store/rows/quant_blocks.h"
#include "store/rows/tag.h"

#include <string.h>

/* Bites per reading of the clock; reading it twice per bite would cost 1 % of the load. */
#define TIMED_BITES 8u

#define LINE_BYTES 64u
/* prefetched of the next row: about the lines that a core requests at once */
#define FETCH_BYTES 8192u

/* Rows of one piece in the front slot, in the parts that tags cover: whole rows, or K and V. */
struct rows {
    uint32_t part_count;
    struct {
        struct sc_store_tag_rows tagged;
        const uint8_t *rows;
    } parts[2];           /* differ in base and rows */
    const uint64_t *tags; /* row i, part p: tags[i * part_count + p] */
};

/* Describes `count` rows from row (or slot) `at` of the operation on; their tags begin at `tag` of
 * the run. The reader's cursor is at the first row. */
static struct rows rows_of(const struct sc_store_reader *reader, const struct sc_reader_slot *slot,
                           uint64_t at, uint64_t tag, uint64_t count)
{
    const struct sc_store *store = reader->inflight.store;
    const struct sc_store_shape *shape = &store->shape;
    const struct sc_store_range *range = &reader->plan.ranges[reader->range];
    const struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, range->piece);
    uint64_t copy = sc_store_table_extent(&store->table, piece->extent)->copy;
    bool is_paired = shape->layout == SC_STORE_PAIRED;
    struct rows rows = {.part_count = is_paired ? 1 : 2,
                        .tags = reader->tags + tag * shape->tags_per_row};
    struct sc_store_tag_rows tagged = {
        .position_first = piece->first_position + range->row_first + reader->range_row,
        .row_bytes = is_paired ? shape->row_bytes : shape->k_row_bytes,
        .count = count,
        .tag_step = shape->tags_per_row};
    for (uint32_t p = 0; p < rows.part_count; p++) {
        tagged.base = sc_store_tag_base(shape->digest, piece->hash, copy, reader->plan.layer,
                                        is_paired ? SC_STORE_PART_ROW : SC_STORE_PART_K + p);
        rows.parts[p].tagged = tagged;
        rows.parts[p].rows = slot->inflight.frame + (p == 0 ? slot->plan.row_at : slot->plan.v_at) +
                             at * tagged.row_bytes;
    }
    return rows;
}

/* Verifies rows. dst: receives joined K and V of a split layout; NULL: they stay apart. */
static bool rows_verify(const struct rows *rows, bool is_verified, uint8_t *dst)
{
    uint64_t count = rows->parts[0].tagged.count, bytes = rows->parts[0].tagged.row_bytes;
    for (uint32_t p = 0; !is_verified && p < rows->part_count; p++)
        if (sc_store_tag_verify(&rows->parts[p].tagged, rows->parts[p].rows, rows->tags + p) !=
            count)
            return false;
    for (uint64_t i = 0; rows->part_count == 2 && dst != NULL && i < count; i++)
        for (uint32_t p = 0; p < 2; p++, dst += bytes)
            memcpy(dst, rows->parts[p].rows + i * bytes, bytes);
    return true;
}

/* Verifies rows while moving them to the sink. first: number of the first row. */
static bool rows_move(const struct rows *rows, const struct sc_store_sink *sink, uint64_t first)
{
    uint8_t *spans[SC_STORE_SPANS_MAX];
    uint64_t count = rows->parts[0].tagged.count, bytes = rows->parts[0].tagged.row_bytes;
    uint64_t part_spans = bytes / sink->span_bytes, row_spans = part_spans * rows->part_count;
    uint64_t most = SC_STORE_SPANS_MAX / row_spans;
    for (uint64_t done = 0, now; done < count; done += now) {
        now = count - done < most ? count - done : most;
        sink->spans(sink->user, first + done, now, spans);
        for (uint32_t p = 0; p < rows->part_count; p++) {
            const struct sc_store_tag_spans to = {
                .at = spans + p * part_spans, .bytes = sink->span_bytes, .step = row_spans};
            struct sc_store_tag_rows tagged = rows->parts[p].tagged;
            tagged.position_first += done;
            tagged.count = now;
            if (sc_store_tag_move(&tagged, rows->parts[p].rows + done * bytes,
                                  rows->tags + done * rows->part_count + p, &to) != now)
                return false;
        }
    }
    return true;
}

/* Verifies rows of one piece, from row `at` of the operation on; joins, moves and caches them. */
static bool rows_pass(struct sc_store_reader *reader, const struct sc_reader_slot *slot,
                      const struct sc_store_sink *sink, uint64_t at, uint64_t count, uint8_t *dst)
{
    const struct sc_store *store = reader->inflight.store;
    const struct rows rows = rows_of(reader, slot, at, slot->plan.run_row + at, count);
    if (!(sink != NULL ? rows_move(&rows, sink, slot->plan.row_first + at)
                       : rows_verify(&rows, reader->is_front_good, dst)))
        return false;
    if (slot->inflight.host == NULL && reader->range_row == 0)
        sc_host_slab_begin(store, &reader->fill, reader->plan.layer,
                           &reader->plan.ranges[reader->range], SC_STORE_WANT_ROWS,
                           reader->plan.ranges[reader->range].row_count);
    sc_host_slab_put(store, &reader->fill, reader->range_row, count, rows.tags, rows.parts[0].rows,
                     rows.parts[1].rows);
    return true;
}

static bool fill_is_whole(const struct sc_store_reader *reader)
{
    return reader->fill.slab != NULL && reader->fill.rows_given == reader->fill.row_count;
}

/* Publishes a fill in parts if it is complete, else abandons it. */
static void fill_end(struct sc_store_reader *reader)
{
    sc_host_slab_end(reader->inflight.store, &reader->fill, fill_is_whole(reader));
}

/* Returns true if slots from `first` on continue the chunk that is being filled. */
static bool fill_takes(const struct sc_host_slab_fill *fill, const struct sc_host_chunk *chunk,
                       uint64_t first)
{
    return fill->slab != NULL && fill->key.kind == chunk->key.kind &&
           fill->key.copy == chunk->key.copy && fill->key.first == chunk->key.first &&
           fill->rows_given == first - chunk->first;
}

/* Moves the consumer's range to that of a logical row. */
static void range_seek(struct sc_store_reader *reader, uint64_t row, uint64_t *range_first)
{
    const struct sc_store_range *ranges = reader->plan.ranges;
    while (row < *range_first)
        *range_first -= ranges[--reader->range].row_count;
    while (reader->range + 1 < reader->plan.range_count &&
           row - *range_first >= ranges[reader->range].row_count)
        *range_first += ranges[reader->range++].row_count;
}

static uint64_t bite_of(const struct sc_store_reader *reader, uint64_t bytes)
{
    uint64_t most = SC_STORE_BITE_BYTES / bytes;
    most = most > 0 ? most : 1;
    return most > reader->rows_least ? most : reader->rows_least;
}

static struct sc_store_rows rows_together(const struct sc_store_reader *reader, const uint8_t *rows)
{
    uint64_t row_bytes = reader->inflight.store->shape.row_bytes;
    return (struct sc_store_rows){.rows = rows, .v = rows + row_bytes / 2, .stride = row_bytes};
}

/* Notes the frame bytes that the caller's rows are in. v: NULL, or a second place. */
static void last_set(struct sc_store_reader *reader, const uint8_t *at, const uint8_t *v,
                     uint64_t bytes)
{
    reader->last[0] = at;
    reader->last[1] = v;
    reader->last_bytes = bytes;
}

void sc_reader_rows_leave(struct sc_store_reader *reader)
{
    for (uint32_t i = 0; i < 2 && reader->leaves && reader->last_bytes > 0; i++)
        if (reader->last[i] != NULL)
            sc_staging_leave(reader->last[i], reader->last_bytes);
    reader->last_bytes = 0;
}

/* ---- Whole ranges of a permuted copy --------------------------------------------------------- */

/* Returns the run's row in the front's next slot, + 1; 0: none. */
static uint64_t slot_row_of(const struct sc_store_reader *reader, const struct sc_reader_slot *slot)
{
    return reader->slot_rows[slot->plan.slot_first + reader->slot_row];
}

static bool slots_left(struct sc_store_reader *reader, const struct sc_reader_slot *slot)
{
    while (reader->slot_row < slot->plan.slot_count && slot_row_of(reader, slot) == 0)
        reader->slot_row++;
    return reader->slot_row < slot->plan.slot_count;
}

/* copy: of the rows that were read; the extent may have a newer one by now. */
static struct sc_host_chunk chunk_at(const struct sc_store_reader *reader,
                                     const struct sc_store_range *range, uint64_t copy,
                                     uint64_t slot, uint32_t wanted)
{
    const struct sc_store *store = reader->inflight.store;
    const struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, range->piece);
    const struct sc_store_extent_entry *extent =
        sc_store_table_extent(&store->table, piece->extent);
    return sc_host_chunk_of(store, reader->plan.layer, copy, extent->row_count, slot, wanted);
}

/* Returns the slots up to the next chunk or read. A whole chunk, from one or more reads,
 * is also copied to host memory, and published after the load's rows of it were verified. */
static uint64_t chunk_left(struct sc_store_reader *reader, const struct sc_reader_slot *slot)
{
    const struct sc_store *store = reader->inflight.store;
    const struct sc_store_shape *shape = &store->shape;
    const struct sc_store_plan_op *plan = &slot->plan;
    const struct sc_store_range *range = &reader->plan.ranges[reader->range];
    uint64_t now = plan->slot_first + reader->slot_row, end = plan->slot_first + plan->slot_count;
    if (store->host == NULL || slot->inflight.host != NULL)
        return end - now;
    if (now < reader->slots_kept)
        return reader->slots_kept - now;
    const struct sc_host_chunk chunk =
        chunk_at(reader, range, plan->slots_copy, now, SC_STORE_WANT_ROWS);
    end = chunk.end < end ? chunk.end : end;
    reader->slots_kept = end;
    uint64_t first = plan->slot_first, wanted = 0;
    if (first <= chunk.first) {
        first = chunk.first;
        fill_end(reader);
        for (uint64_t i = first; i < chunk.end; i++)
            wanted += reader->slot_rows[i] != 0;
        sc_host_chunk_begin(store, &reader->fill, &chunk, range->piece, wanted);
    }
    struct sc_host_slab_fill *fill = &reader->fill;
    if (!fill_takes(fill, &chunk, first))
        return end - now; /* the chunk began elsewhere, or a part was not read */
    uint64_t stride = shape->layout == SC_STORE_SPLIT ? shape->k_row_bytes : shape->row_bytes;
    uint64_t away = (first - plan->slot_first) * stride;
    sc_host_chunk_put(store, fill, end - first, slot->inflight.frame + plan->row_at + away,
                      slot->inflight.frame + plan->v_at + away);
    return end - now;
}

static void run_seek(struct sc_store_reader *reader, const struct sc_reader_slot *slot,
                     uint64_t run_row)
{
    uint64_t row = slot->plan.row_first + run_row;
    range_seek(reader, row, &reader->run_range_first);
    reader->range_row = row - reader->run_range_first;
}

void sc_reader_rows_open(struct sc_store_reader *reader, const struct sc_reader_slot *slot)
{
    const struct sc_store_plan_op *plan = &slot->plan;
    if (plan->row_count > 0 || plan->slots != NULL) {
        reader->range = plan->range;
        reader->range_row = plan->range_row;
        reader->run_range_first = plan->row_first - plan->range_row;
    }
    bool is_new = plan->tag_count > 0 && plan->tag_first == 0;
    if (sc_host_tier_has_slots(reader->fill.key.kind) && (plan->slots == NULL || is_new))
        fill_end(reader);
    if (plan->slots == NULL)
        return;
    reader->slots_kept = 0;
    if (is_new) {
        memset(reader->slot_rows, 0, SC_STORE_ROWS_MAX * sizeof(*reader->slot_rows));
        for (uint64_t i = 0; i < plan->run_count; i++)
            reader->slot_rows[plan->slots[plan->run_first + i]] = (uint16_t)(i + 1);
    }
    if (slots_left(reader, slot)) /* a failed read is reported at this row */
        run_seek(reader, slot, slot_row_of(reader, slot) - 1);
}

/* Returns the number of rows of one piece whose slots are contiguous and in order, at most `most`.
 * Moves the cursor there. ret_row: index of the first row in the run. */
static uint64_t slots_run(struct sc_store_reader *reader, const struct sc_reader_slot *slot,
                          uint64_t most, uint64_t *ret_row)
{
    const struct sc_store_plan_op *plan = &slot->plan;
    uint64_t row = slot_row_of(reader, slot) - 1, count = 1;
    const uint16_t *at = reader->slot_rows + plan->slot_first + reader->slot_row;
    run_seek(reader, slot, row);
    uint64_t left = reader->plan.ranges[reader->range].row_count - reader->range_row;
    most = left < most ? left : most;
    left = chunk_left(reader, slot);
    most = left < most ? left : most;
    while (count < most && at[count] == (uint16_t)(row + count + 1))
        count++;
    *ret_row = row;
    return count;
}

/* Moves a bite of runs to the sink, which is asked for each run's place. */
static spec_status slots_move(struct sc_store_reader *reader, const struct sc_reader_slot *slot,
                              const struct sc_store_sink *sink, struct sc_store_rows *ret_rows)
{
    const struct sc_store_shape *shape = &reader->inflight.store->shape;
    const struct sc_store_plan_op *plan = &slot->plan;
    uint64_t first = reader->slot_row, done = 0, row, most = bite_of(reader, shape->row_bytes);
    bool is_split = shape->layout == SC_STORE_SPLIT;
    uint64_t stride = is_split ? shape->k_row_bytes : shape->row_bytes;
    for (uint64_t count; done < most && slots_left(reader, slot); done += count) {
        count = slots_run(reader, slot, most - done, &row);
        const struct rows rows = rows_of(reader, slot, reader->slot_row, row, count);
        if (!rows_move(&rows, sink, plan->row_first + row))
            return SPEC_E_CORRUPT;
        reader->slot_row += count;
    }
    last_set(reader, slot->inflight.frame + plan->row_at + first * stride,
             is_split ? slot->inflight.frame + plan->v_at + first * stride : NULL,
             (reader->slot_row - first) * stride);
    ret_rows->row_count = done;
    return SPEC_OK;
}

static spec_status slots_take(struct sc_store_reader *reader, const struct sc_reader_slot *slot,
                              const struct sc_store_sink *sink, struct sc_store_rows *ret_rows)
{
    const struct sc_store_shape *shape = &reader->inflight.store->shape;
    bool is_split = shape->layout == SC_STORE_SPLIT;
    bool is_apart = is_split && reader->rows_least > 0;
    uint64_t row;
    if (sink != NULL)
        return slots_move(reader, slot, sink, ret_rows);
    uint64_t count = slots_run(reader, slot, bite_of(reader, shape->row_bytes), &row);
    const struct rows rows = rows_of(reader, slot, reader->slot_row, row, count);
    if (!rows_verify(&rows, false, is_apart ? NULL : reader->rows))
        return SPEC_E_CORRUPT;
    uint64_t stride = is_split ? shape->k_row_bytes : shape->row_bytes;
    const uint8_t *k = rows.parts[0].rows, *v = is_split ? rows.parts[1].rows : NULL;
    if (is_apart)
        *ret_rows = (struct sc_store_rows){.rows = k, .v = v, .stride = stride};
    else
        *ret_rows = rows_together(reader, is_split ? reader->rows : k);
    ret_rows->row_first = slot->plan.row_first + row;
    ret_rows->row_count = count;
    last_set(reader, k, v, count * stride);
    reader->slot_row += count;
    return SPEC_OK;
}

/* ---- Whole ranges in bites ------------------------------------------------------------------- */

spec_status sc_reader_rows_take(struct sc_store_reader *reader, const struct sc_reader_slot *slot,
                                const struct sc_store_sink *sink, struct sc_store_rows *ret_rows)
{
    struct sc_store *store = reader->inflight.store;
    const struct sc_store_shape *shape = &store->shape;
    uint64_t most = bite_of(reader, shape->row_bytes), at = reader->slot_row;
    if (slot->plan.slots != NULL)
        return slots_take(reader, slot, sink, ret_rows);
    uint64_t count = slot->plan.row_count - at;
    bool is_split = shape->layout == SC_STORE_SPLIT;
    bool is_apart = is_split && reader->rows_least > 0;
    count = count < most ? count : most;
    bool is_timed = reader->bite_count++ % TIMED_BITES == 0;
    uint64_t start_ns = is_timed ? sc_exec_now_ns(store->params.exec) : 0;
    spec_status status = SPEC_OK;
    for (uint64_t done = 0; done < count && status == SPEC_OK;) {
        const struct sc_store_range *range = &reader->plan.ranges[reader->range];
        uint64_t left = range->row_count - reader->range_row;
        uint64_t now = left < count - done ? left : count - done;
        if (now > 0 && !rows_pass(reader, slot, sink, at + done, now,
                                  is_apart ? NULL : reader->rows + done * shape->row_bytes)) {
            status = SPEC_E_CORRUPT;
            break;
        }
        done += now;
        reader->range_row += now;
        if (reader->range_row == range->row_count) {
            sc_host_slab_end(store, &reader->fill, true);
            reader->range++;
            reader->range_row = 0;
        }
    }
    if (is_timed)
        sc_store_count(&store->counts.verify_ns,
                       (sc_exec_now_ns(store->params.exec) - start_ns) * TIMED_BITES);
    if (status != SPEC_OK)
        return status;
    uint64_t stride = is_split ? shape->k_row_bytes : shape->row_bytes;
    const uint8_t *rows = slot->inflight.frame + slot->plan.row_at + at * stride;
    const uint8_t *v = is_split ? slot->inflight.frame + slot->plan.v_at + at * stride : NULL;
    if (sink == NULL && is_apart)
        *ret_rows = (struct sc_store_rows){.rows = rows, .v = v, .stride = stride};
    else if (sink == NULL)
        *ret_rows = rows_together(reader, is_split ? reader->rows : rows);
    ret_rows->row_first = slot->plan.row_first + at;
    ret_rows->row_count = count;
    last_set(reader, rows, v, count * stride);
    reader->slot_row += count;
    return SPEC_OK;
}

/* ---- Gathered rows --------------------------------------------------------------------------- */

static bool bit_of(const uint64_t *bits, uint64_t i)
{
    return (bits[i / 64] >> (i % 64) & 1) != 0;
}

static bool gather_is_wanted(const struct sc_store_reader *reader, uint64_t gathered)
{
    return reader->wanted_bits == NULL ||
           bit_of(reader->wanted_bits, sc_store_gather_row(&reader->gather_plan.gather, gathered));
}

static void bases_set(struct sc_store_reader *reader)
{
    if (reader->bases.range == reader->range)
        return;
    const struct sc_store *store = reader->inflight.store;
    const struct sc_store_range *range = &reader->plan.ranges[reader->range];
    const struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, range->piece);
    uint64_t copy = sc_store_table_extent(&store->table, piece->extent)->copy;
    bool is_paired = store->shape.layout == SC_STORE_PAIRED;
    reader->bases.range = reader->range;
    reader->bases.position = piece->first_position + range->row_first;
    for (uint32_t i = 0; i < 2; i++)
        reader->bases.base[i] =
            sc_store_tag_base(store->shape.digest, piece->hash, copy, reader->plan.layer,
                              is_paired ? SC_STORE_PART_ROW : SC_STORE_PART_K + i);
}

/* Verifies one half of `count` rows of one range, from logical row `row` on. */
static bool gather_verify(const struct sc_store_reader *reader, uint64_t row, uint64_t range_first,
                          uint64_t count, uint32_t part, const uint8_t *rows)
{
    const struct sc_store_shape *shape = &reader->inflight.store->shape;
    const struct sc_store_tag_rows tagged = {
        .base = reader->bases.base[part],
        .position_first = reader->bases.position + (row - range_first),
        .row_bytes = shape->layout == SC_STORE_PAIRED ? shape->row_bytes : shape->k_row_bytes,
        .count = count,
        .tag_step = shape->tags_per_row};
    return sc_store_tag_verify(&tagged, rows, reader->gather_tags + row * tagged.tag_step + part) ==
           count;
}

/* Returns the row's slot, or the row itself without slots; only differences are used. */
static uint64_t unit_slot(const struct sc_reader_unit *unit, uint64_t row)
{
    return unit->slots != NULL ? unit->slots[row + unit->shift] : row;
}

/* Returns how many rows from `gathered` to `end` are wanted, consecutive and contiguous in the
 * read. */
static uint64_t run_count(const struct sc_store_reader *reader, const struct sc_reader_unit *unit,
                          uint64_t gathered, uint64_t end, uint64_t most)
{
    const struct sc_store_gather_rows *gather = &reader->gather_plan.gather;
    uint64_t row = sc_store_gather_row(gather, gathered),
             index = sc_store_gather_index(gather, gathered);
    uint64_t slot = unit_slot(unit, row), count = 1;
    while (count < most && gathered + count < end &&
           sc_store_gather_row(gather, gathered + count) == row + count &&
           sc_store_gather_index(gather, gathered + count) == index + count &&
           unit_slot(unit, row + count) == slot + count &&
           gather_is_wanted(reader, gathered + count))
        count++;
    return count;
}

/* Prefetches the next row into the CPU's cache: rows of the host tier are scattered and not
 * cached. */
static void next_fetch(const struct sc_store_reader *reader, const struct sc_reader_slot *slot,
                       const struct sc_reader_unit *unit, uint64_t stride, uint64_t gathered)
{
    const struct sc_store_gather_rows *gather = &reader->gather_plan.gather;
    bool is_last = gathered >= unit->gather_first + unit->gather_count;
    if (slot->inflight.host == NULL || (is_last && reader->behind_front == NULL))
        return;
    const uint8_t *at = reader->behind_front;
    if (!is_last)
        at = slot->inflight.frame + unit->at[0] +
             (unit_slot(unit, sc_store_gather_row(gather, gathered)) -
              unit_slot(unit, sc_store_gather_row(gather, unit->gather_first))) *
                 stride;
    for (uint64_t i = 0; i < stride && i < FETCH_BYTES; i += LINE_BYTES)
        __builtin_prefetch(at + i, 0, 2);
}

/* Verifies a run of rows of one unit; joins both halves of a split layout. */
static spec_status run_take(struct sc_store_reader *reader, const struct sc_reader_slot *slot,
                            const struct sc_reader_unit *unit, uint64_t count,
                            struct sc_store_rows *ret_rows)
{
    const struct sc_store_shape *shape = &reader->inflight.store->shape;
    const struct sc_store_gather_rows *gather = &reader->gather_plan.gather;
    bool is_paired = shape->layout == SC_STORE_PAIRED;
    bool is_both = !is_paired && gather->wanted == SC_STORE_WANT_ROWS;
    uint64_t stride = is_paired ? shape->row_bytes : shape->k_row_bytes;
    uint64_t first = sc_store_gather_row(gather, unit->gather_first),
             range_first = unit->range_first;
    uint64_t row = sc_store_gather_row(gather, unit->gather_first + reader->slot_row);
    uint64_t away = unit_slot(unit, row) - unit_slot(unit, first);
    const uint8_t *at = slot->inflight.frame + unit->at[0] + away * stride;
    const uint8_t *v = slot->inflight.frame + unit->at[1] + away * stride;
    uint32_t part = !is_paired && gather->wanted == SC_STORE_WANT_V ? 1 : 0;
    next_fetch(reader, slot, unit, stride, unit->gather_first + reader->slot_row + count);
    reader->range = unit->range;
    for (uint64_t done = 0; done < count;) {
        range_seek(reader, row + done, &range_first);
        bases_set(reader);
        uint64_t left = range_first + reader->plan.ranges[reader->range].row_count - (row + done);
        uint64_t now = left < count - done ? left : count - done;
        const uint8_t *rows = at + done * stride;
        bool is_good = gather_verify(reader, row + done, range_first, now, part, rows);
        if (is_both && is_good)
            is_good = gather_verify(reader, row + done, range_first, now, 1, v + done * stride);
        if (!is_good)
            return SPEC_E_CORRUPT;
        done += now;
    }
    last_set(reader, at, is_both ? v : NULL, count * stride);
    *ret_rows = (struct sc_store_rows){.rows = at, .v = is_both ? v : at, .stride = stride};
    if (is_paired || (is_both && reader->rows_least == 0))
        *ret_rows = rows_together(reader, is_paired ? at : reader->rows);
    uint8_t *dst = reader->rows;
    bool moves = ret_rows->rows == dst;
    for (uint64_t i = 0; moves && i < count; i++, dst += 2 * stride) {
        memcpy(dst, at + i * stride, stride);
        memcpy(dst + stride, v + i * stride, stride);
    }
    return SPEC_OK;
}

/* ---- Slabs read for some of their rows ------------------------------------------------------- */

/* Copies a piece's part of a slab (rows, or the half that was read) to host memory if all rows
 * agree with their tags. Loads of whole slabs will want the other rows. */
static void piece_keep(struct sc_store_reader *reader, const struct sc_store_gather_slab *slab,
                       uint64_t gathered, const uint8_t *rows, const uint8_t *v)
{
    const struct sc_store *store = reader->inflight.store;
    const struct sc_store_shape *shape = &store->shape;
    const struct sc_store_range *range = &reader->plan.ranges[slab->range];
    const struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, range->piece);
    const struct sc_store_gather_rows *gather = &reader->gather_plan.gather;
    struct sc_host_slab_fill *fill = &reader->fill;
    bool is_paired = shape->layout == SC_STORE_PAIRED;
    uint64_t stride = is_paired ? shape->row_bytes : shape->k_row_bytes, used = 0;
    uint64_t base = (uint64_t)piece->extent_row + range->row_first; /* extent row of row 0 */
    uint64_t from = slab->first > base ? slab->first - base : 0;
    uint64_t end = slab->first + (uint64_t)slab->count;
    end = end > base ? end - base : 0;
    end = end < range->row_count ? end : range->row_count;
    if (from >= end)
        return; /* skipped rows, or rows after the range */
    if (from == 0) {
        fill_end(reader);
        for (; gathered < gather->count &&
               sc_store_gather_row(gather, gathered) - slab->range_first < range->row_count;
             gathered++)
            used += gather_is_wanted(reader, gathered);
        sc_host_slab_begin(store, fill, reader->plan.layer, range, gather->wanted, used);
    }
    if (fill->slab == NULL || sc_host_tier_has_slots(fill->key.kind) ||
        fill->piece != range->piece || fill->rows_given != from)
        return;
    uint64_t row = slab->range_first + from, count = end - from;
    rows += (base + from - slab->first) * stride;
    v += (base + from - slab->first) * stride;
    reader->range = slab->range;
    bases_set(reader);
    uint32_t part = gather->wanted == SC_STORE_WANT_V ? 1 : 0;
    bool is_both = !is_paired && gather->wanted == SC_STORE_WANT_ROWS;
    bool is_good = gather_verify(reader, row, slab->range_first, count, part, rows) &&
                   (!is_both || gather_verify(reader, row, slab->range_first, count, 1, v));
    if (is_good) {
        sc_host_slab_put(store, fill, from, count, reader->gather_tags + row * shape->tags_per_row,
                         rows, v);
        fill->rows_given += count;
    }
    if (!is_good || fill_is_whole(reader))
        sc_host_slab_end(store, fill, is_good);
}

/* Copies a chunk of slots, or the half that was read, to host memory. Only its wanted rows are
 * verified: the load has no other tags. */
static void slots_keep(struct sc_store_reader *reader, const struct sc_reader_unit *unit,
                       const struct sc_store_gather_slab *slab, const uint8_t *rows,
                       const uint8_t *v)
{
    const struct sc_store *store = reader->inflight.store;
    const struct sc_store_range *range = &reader->plan.ranges[slab->range];
    const struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, range->piece);
    const struct sc_store_extent_entry *extent =
        sc_store_table_extent(&store->table, piece->extent);
    const struct sc_store_gather_rows *gather = &reader->gather_plan.gather;
    struct sc_host_slab_fill *fill = &reader->fill;
    const struct sc_host_chunk chunk =
        chunk_at(reader, range, unit->slots_copy, slab->first, gather->wanted);
    if (slab->first == chunk.first) {
        uint64_t used = 0;
        fill_end(reader);
        for (uint64_t gathered = unit->gather_first; gathered < gather->count; gathered++) {
            uint64_t row = sc_store_gather_row(gather, gathered) + unit->shift;
            if (row >= extent->row_count || unit->slots[row] < chunk.first ||
                unit->slots[row] >= chunk.end)
                break;
            used += gather_is_wanted(reader, gathered);
        }
        sc_host_chunk_begin(store, fill, &chunk, range->piece, used);
    }
    if (fill_takes(fill, &chunk, slab->first))
        sc_host_chunk_put(store, fill, slab->count, rows, v);
}

/* Offers what was read of a slab to host memory, once. */
static void slab_keep(struct sc_store_reader *reader, const struct sc_reader_slot *slot,
                      struct sc_reader_unit *unit)
{
    const struct sc_store_gather_slab slab = unit->slab;
    struct sc_store *store = reader->inflight.store;
    unit->slab.count = 0;
    if (store->host == NULL || unit->status != SPEC_OK)
        return;
    const uint8_t *rows = slot->inflight.frame + slab.at[0], *v = slot->inflight.frame + slab.at[1];
    uint64_t start_ns = sc_exec_now_ns(store->params.exec);
    if (unit->slots == NULL)
        piece_keep(reader, &slab, unit->gather_first, rows, v);
    else
        slots_keep(reader, unit, &slab, rows, v);
    sc_store_count(&store->counts.verify_ns, sc_exec_now_ns(store->params.exec) - start_ns);
}

bool sc_reader_rows_left(struct sc_store_reader *reader)
{
    const struct sc_reader_slot *slot = reader->front;
    if (!reader->is_gather && slot->plan.slots != NULL) {
        if (slots_left(reader, slot))
            return true;
        if (fill_is_whole(reader)) /* otherwise the next read continues it */
            fill_end(reader);
        return false;
    }
    if (!reader->is_gather)
        return reader->slot_row < slot->plan.row_count;
    for (; reader->slot_unit < slot->unit_count; reader->slot_unit++) {
        struct sc_reader_unit *unit = sc_reader_unit_of(reader, slot, reader->slot_unit);
        if (unit->slab.count > 0 && reader->gather_tags != NULL)
            slab_keep(reader, slot, unit);
        for (; reader->slot_row < unit->gather_count; reader->slot_row++)
            if (gather_is_wanted(reader, unit->gather_first + reader->slot_row))
                return true;
        if (fill_is_whole(reader)) /* slots, whose wanted rows are verified by now */
            fill_end(reader);
        reader->slot_row = 0;
    }
    return false;
}

spec_status sc_reader_gather_take(struct sc_store_reader *reader, const struct sc_reader_slot *slot,
                                  struct sc_store_rows *ret_rows)
{
    struct sc_store *store = reader->inflight.store;
    struct sc_reader_unit *unit = sc_reader_unit_of(reader, slot, reader->slot_unit);
    uint64_t gathered = unit->gather_first + reader->slot_row;
    uint64_t count = run_count(reader, unit, gathered, unit->gather_first + unit->gather_count,
                               bite_of(reader, sc_reader_gather_bytes(reader)));
    bool is_timed = reader->bite_count++ % TIMED_BITES == 0;
    uint64_t start_ns = is_timed ? sc_exec_now_ns(store->params.exec) : 0;
    uint64_t range_first = unit->range_first;
    SC_ASSERT(store->params.poison, reader->gather_tags != NULL);
    reader->range = unit->range;
    range_seek(reader, sc_store_gather_row(&reader->gather_plan.gather, gathered), &range_first);
    spec_status status = reader->gather_tags == NULL ? SPEC_E_CORRUPT : unit->status;
    if (status == SPEC_OK)
        status = run_take(reader, slot, unit, count, ret_rows);
    if (is_timed)
        sc_store_count(&store->counts.verify_ns,
                       (sc_exec_now_ns(store->params.exec) - start_ns) * TIMED_BITES);
    if (status != SPEC_OK)
        return status;
    ret_rows->row_first = sc_store_gather_index(&reader->gather_plan.gather, gathered);
    ret_rows->row_count = count;
    reader->slot_row += count;
    return SPEC_OK;
}

uint64_t sc_reader_gather_wanted(const struct sc_store_reader *reader, uint64_t first,
                                 uint64_t count, uint64_t *covered_bits)
{
    uint64_t wanted = 0;
    if (reader->wanted_bits == NULL)
        return count;
    for (uint64_t i = first; i < first + count; i++) {
        uint64_t row = sc_store_gather_row(&reader->gather_plan.gather, i);
        if (!bit_of(reader->wanted_bits, row))
            continue;
        if (covered_bits != NULL)
            covered_bits[row / 64] |= 1ull << (row % 64);
        wanted++;
    }
    return wanted;
}
