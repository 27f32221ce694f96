/* quarantine: dropped pieces, from the drop until their pages are reused.
 *
 *   rows of an extent   [ a a | b b b | c c | d d d d ]     pieces a .. d, in every layer
 *   b, then c dropped         [ L ......... R )             a run of free rows
 *   pages of a layer    [    |    |####|####|    |    ]     # wholly inside it: free
 *   buckets, a ring     [due 5 s: b, c, q][due 6 s: x] ...  linked through the pieces' entries
 *   permuted copy exists         the copy before it waits in a list: the extent's original
 *                                pages, or an earlier permuted copy's
 *
 * A page of a layer is free if all its rows belong to freed pieces or none. Tags and padding stay
 * until the last piece is freed. Free pages thus follow from the extent and its pieces' states, so
 * a replay computes the same map (decision 0004).
 *
 * Invariants: a piece's pages are freed once, not before lease_ns_max after its drop.
 * quarantine_bytes is what only quarantined pieces hold. Nothing here allocates.
 * Threads: any; the log lock for states, then the space lock for pages, never both.
 * Tests: tests/unit/store/test_quarantine.c, tests/fault/test_store_faults.c */
#include "store/space/quarantine.h"
#include "store/internal.h"
#include "store/log/apply.h"
#include "store/log/where.h"

#define PAGE          ((uint64_t)SC_IO_PAGE_BYTES)
#define AT_ONCE       256u /* pieces per lock hold or append: 24 KiB */
#define BUCKETS_LEASE 32u  /* per lease time: a piece waits up to 1/32 longer */
/* Longer than a load of a layer. A reader that was stopped counts from when it reads the log. */
#define REUSE_NS_MIN 60000000000ull
_Static_assert(SC_STORE_BUCKETS > BUCKETS_LEASE + 2, "the ring holds a lease's time");

/* ---- Which pages ---------------------------------------------------------------------------- */

/* Rows [first, end) of a piece inside the run [left, right) of otherwise free rows. */
struct span {
    uint64_t left, first, end, right;
    bool alone; /* no other row of the extent is held */
};

static const struct sc_store_shape *extent_shape(const struct sc_store *store,
                                                 const struct sc_store_extent_entry *extent)
{
    return sc_store_space_of(&store->log.spaces, extent->space);
}

/* A split slab is all K, then all V, so its skipped rows are not free. */
static uint64_t piece_row(const struct sc_store *store, const struct sc_store_extent_entry *extent,
                          const struct sc_store_piece_entry *piece)
{
    bool split = extent_shape(store, extent)->layout == SC_STORE_SPLIT;
    return piece->extent_row + (split ? 0u : piece->skip);
}

/* Returns piece `id` of the extent if it holds pages, else NULL. voids: quarantined ones do not. */
static const struct sc_store_piece_entry *piece_holding(const struct sc_store *store,
                                                        uint64_t extent, uint64_t id, bool voids)
{
    const struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, id);
    if (piece == NULL)
        return NULL;
    uint32_t state = atomic_load_explicit(&piece->state, memory_order_acquire);
    bool holds = state == SC_STORE_PIECE_DOOMED || state == SC_STORE_PIECE_LIVE ||
                 state == SC_STORE_PIECE_DROPPED || (state == SC_STORE_PIECE_QUARANTINED && !voids);
    return holds && piece->extent == extent ? piece : NULL;
}

static struct span span_find(const struct sc_store *store,
                             const struct sc_store_extent_entry *extent, uint64_t id, bool voids)
{
    const struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, id), *near;
    struct span span = {.right = extent->row_count,
                        .first = piece_row(store, extent, piece),
                        .end = (uint64_t)piece->extent_row + piece->row_count,
                        .alone = true};
    for (uint64_t i = id; i-- > extent->piece_first;) {
        near = piece_holding(store, piece->extent, i, voids);
        if (near == NULL)
            continue;
        span.left = (uint64_t)near->extent_row + near->row_count;
        span.alone = false;
        break;
    }
    for (uint64_t i = id + 1; i <= extent->piece_last; i++) {
        near = piece_holding(store, piece->extent, i, voids);
        if (near == NULL)
            continue;
        span.right = piece_row(store, extent, near);
        span.alone = false;
        break;
    }
    return span;
}

struct pages {
    uint64_t first, end; /* in the segment; first >= end: none */
};

/* Pages wholly inside rows [first, end) of the layer that starts at byte `start`. */
static struct pages pages_inside(const struct sc_store_extent_entry *extent, uint64_t row_bytes,
                                 uint64_t start, uint64_t first, uint64_t end)
{
    uint64_t rows = start + extent->row_offset;
    return (struct pages){(rows + first * row_bytes + PAGE - 1) / PAGE,
                          (rows + end * row_bytes) / PAGE};
}

/* Frees pages in the map (locked); NULL: only counts them. */
static uint64_t run_free(struct sc_store_space *map, uint32_t segment, uint64_t first, uint64_t end)
{
    if (first >= end)
        return 0;
    if (map != NULL)
        sc_store_space_free(map, segment, first, end - first);
    return end - first;
}

/* Frees or counts the pages of all layers that become free with the span's piece. */
static uint64_t span_free(const struct sc_store *store, const struct sc_store_extent_entry *extent,
                          const struct span *span, struct sc_store_space *map)
{
    uint64_t count = 0, row_bytes = extent_shape(store, extent)->row_bytes;
    for (uint32_t i = 0; i < extent->part_count; i++) {
        const struct sc_store_part *part = &extent->parts[i];
        for (uint32_t layer = 0; layer < part->layer_count; layer++) {
            uint64_t start = part->offset + layer * extent->stride;
            struct pages run = pages_inside(extent, row_bytes, start, span->left, span->right);
            struct pages before = pages_inside(extent, row_bytes, start, span->left, span->first);
            struct pages after = pages_inside(extent, row_bytes, start, span->end, span->right);
            run.first = before.end > run.first ? before.end : run.first;
            run.end = after.first < run.end ? after.first : run.end;
            count += run_free(map, part->segment, run.first, run.end);
        }
    }
    return count;
}

static uint64_t derived_free(const struct sc_store_section *derived, struct sc_store_space *map)
{
    uint64_t count = 0;
    for (uint32_t i = 0; derived != NULL && i < derived->part_count; i++) {
        const struct sc_store_part *part = &derived->parts[i];
        uint64_t first = part->offset / PAGE, pages = sc_store_part_pages(part, derived->stride);
        count += run_free(map, part->segment, first, first + pages);
    }
    return count;
}

/* Frees or counts (map NULL) the permuted copies' pages. */
static uint64_t permutation_free(const struct sc_store_extent_entry *extent,
                                 struct sc_store_space *map)
{
    return derived_free(atomic_load(&extent->held_permutation), map) +
           derived_free(atomic_load(&extent->held_replaced), map);
}

static uint64_t sections_free(const struct sc_store_extent_entry *extent,
                              struct sc_store_space *map)
{
    return derived_free(atomic_load(&extent->held_section), map) +
           derived_free(atomic_load(&extent->held_quant), map) + permutation_free(extent, map);
}

/* Frees or counts what the last piece still holds: tags, padding, derived sections too. */
static uint64_t rest_free(const struct sc_store *store, const struct sc_store_extent_entry *extent,
                          const struct span *span, struct sc_store_space *map)
{
    uint64_t count = sections_free(extent, map);
    uint64_t row_bytes = extent_shape(store, extent)->row_bytes;
    for (uint32_t i = 0; i < extent->part_count; i++) {
        const struct sc_store_part *part = &extent->parts[i];
        uint64_t next = part->offset / PAGE;
        uint64_t part_end = next + sc_store_part_pages(part, extent->stride);
        for (uint32_t layer = 0; layer < part->layer_count; layer++) {
            uint64_t start = part->offset + layer * extent->stride;
            const struct pages gone[2] = {
                pages_inside(extent, row_bytes, start, 0, span->first),
                pages_inside(extent, row_bytes, start, span->end, extent->row_count)};
            for (uint32_t g = 0; g < 2; g++) {
                if (gone[g].first >= gone[g].end)
                    continue;
                count += run_free(map, part->segment, next, gone[g].first);
                next = gone[g].end;
            }
        }
        count += run_free(map, part->segment, next, part_end);
    }
    return count;
}

/* Frees or counts the extent's own held pages: all except rows without a piece. */
static uint64_t parts_free(const struct sc_store *store, uint64_t id,
                           const struct sc_store_extent_entry *extent, struct sc_store_space *map)
{
    uint64_t count = 0, row_bytes = extent_shape(store, extent)->row_bytes;
    for (uint32_t i = 0; i < extent->part_count; i++) {
        const struct sc_store_part *part = &extent->parts[i];
        uint64_t next = part->offset / PAGE;
        uint64_t part_end = next + sc_store_part_pages(part, extent->stride);
        for (uint32_t layer = 0; layer < part->layer_count; layer++) {
            uint64_t start = part->offset + layer * extent->stride, row = 0;
            for (uint64_t p = extent->piece_first; p <= extent->piece_last + 1; p++) {
                const struct sc_store_piece_entry *piece =
                    p <= extent->piece_last ? piece_holding(store, id, p, false) : NULL;
                if (piece == NULL && p <= extent->piece_last)
                    continue;
                uint64_t end = piece != NULL ? piece_row(store, extent, piece) : extent->row_count;
                struct pages gone = pages_inside(extent, row_bytes, start, row, end);
                row = piece != NULL ? (uint64_t)piece->extent_row + piece->row_count : end;
                if (gone.first >= gone.end)
                    continue;
                count += run_free(map, part->segment, next, gone.first);
                next = gone.end;
            }
        }
        count += run_free(map, part->segment, next, part_end);
    }
    return count;
}

/* ---- Trim ----------------------------------------------------------------------------------- */

/* Space lock held. */
static void pages_gone(struct sc_store *store, struct sc_store_extent_entry *extent, uint64_t pages)
{
    SC_ASSERT(store->params.poison, pages <= extent->held_pages);
    SC_ASSERT(store->params.poison, pages * PAGE <= store->disk.extent_bytes);
    extent->held_pages -= (uint32_t)pages;
    store->disk.extent_bytes -= pages * PAGE;
}

/* Space lock held. Frees rows before, between and behind the pieces. */
static void extent_trim(struct sc_store *store, uint64_t id, struct sc_store_extent_entry *extent)
{
    uint64_t row = 0;
    bool held = false;
    if (extent->trimmed || extent->is_unplaced)
        return;
    extent->trimmed = true;
    for (uint32_t i = 0; i < extent->part_count; i++)
        extent->held_pages += (uint32_t)sc_store_part_pages(&extent->parts[i], extent->stride);
    for (uint64_t i = extent->piece_first; i <= extent->piece_last; i++) {
        const struct sc_store_piece_entry *piece = piece_holding(store, id, i, false);
        if (piece == NULL)
            continue;
        uint64_t first = piece_row(store, extent, piece);
        struct span gap = {.left = row, .first = row, .end = first, .right = first};
        if (first > row)
            pages_gone(store, extent, span_free(store, extent, &gap, &store->disk.space));
        row = (uint64_t)piece->extent_row + piece->row_count;
        held = true;
    }
    struct span gap = {row, row, extent->row_count, extent->row_count, !held};
    if (row < extent->row_count)
        pages_gone(store, extent,
                   held ? span_free(store, extent, &gap, &store->disk.space)
                        : rest_free(store, extent, &gap, &store->disk.space));
}

void sc_store_extent_trim(struct sc_store *store, uint64_t id)
{
    if (!sc_store_keeps_space(store))
        return;
    pthread_mutex_lock(&store->disk.lock);
    extent_trim(store, id, sc_store_table_extent(&store->table, id));
    pthread_mutex_unlock(&store->disk.lock);
}

/* Space lock held. Frees the void copies of an extent's rows; none is left if its last piece was
 * freed. */
static void rows_free(struct sc_store *store, uint64_t id)
{
    struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, id);
    uint8_t is_void = SC_STORE_ROWS_VOID;
    uint64_t pages = 0;
    if (atomic_compare_exchange_strong(&extent->rows_state, &is_void, SC_STORE_ROWS_FREED))
        pages = parts_free(store, id, extent, &store->disk.space);
    if (atomic_load(&extent->replaced_is_void)) {
        pages += derived_free(atomic_load(&extent->held_replaced), &store->disk.space);
        atomic_store(&extent->held_replaced, NULL);
        atomic_store(&extent->replaced_is_void, false);
    }
    SC_ASSERT(store->params.poison, pages <= extent->void_pages);
    extent->void_pages -= (uint32_t)pages;
    store->quarantine.bytes -= pages * PAGE;
    pages_gone(store, extent, pages);
}

/* Returns true for a piece that failed in an heir, and that the log has not dropped so far. */
static bool failed_here(const struct sc_store *store, const struct sc_store_piece_entry *piece)
{
    return sc_store_keeps_space(store) && !sc_store_can_store(store) &&
           atomic_load(&piece->state) == SC_STORE_PIECE_DROPPED;
}

bool sc_store_extent_is_live(const struct sc_store *store, uint64_t id)
{
    const struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, id);
    bool is_live = atomic_load(&extent->live_count) > 0;
    for (uint64_t i = extent->piece_first; i <= extent->piece_last && !is_live; i++) {
        const struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, i);
        is_live = piece != NULL && piece->extent == id && failed_here(store, piece);
    }
    return is_live;
}

bool sc_store_section_hold(struct sc_store *store, uint64_t id, struct sc_store_section *derived)
{
    struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, id);
    struct sc_store_section *_Atomic *held = sc_store_section_held(extent, derived);
    uint64_t pages = derived_free(derived, NULL);
    pthread_mutex_lock(&store->disk.lock);
    struct sc_store_section *before = atomic_load(held);
    bool is_next = before != NULL && derived->slots != NULL;
    if (is_next && atomic_load(&extent->replaced_is_void))
        rows_free(store, id); /* a replay: its lease had ended when this copy was made */
    bool holds = extent->trimmed && sc_store_extent_is_live(store, id) &&
                 (before == NULL || (is_next && atomic_load(&extent->held_replaced) == NULL));
    if (holds) {
        atomic_store(&extent->held_replaced, is_next ? before : NULL);
        atomic_store(held, derived);
        extent->held_pages += (uint32_t)pages;
        if (derived->codec_shape.bits_k != 0)
            sc_store_count(&store->counts.quantised_bytes, pages * PAGE);
    }
    pthread_mutex_unlock(&store->disk.lock);
    return holds;
}

bool sc_store_section_is_held(struct sc_store *store, uint64_t id)
{
    const struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, id);
    return extent != NULL && (atomic_load(&extent->held_section) != NULL ||
                              atomic_load(&extent->held_quant) != NULL ||
                              atomic_load(&extent->held_permutation) != NULL);
}

enum sc_store_permutation_state sc_store_permutation_state(struct sc_store *store, uint64_t id,
                                                           uint64_t copy)
{
    const struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, id);
    const struct sc_store_section *held =
        extent != NULL ? atomic_load(&extent->held_permutation) : NULL;
    const struct sc_store_section *replaced =
        extent != NULL ? atomic_load(&extent->held_replaced) : NULL;
    if (held == NULL)
        return SC_STORE_PERMUTATION_UNKNOWN;
    if (copy == held->copy || (replaced != NULL && copy == replaced->copy))
        return SC_STORE_PERMUTATION_HELD;
    return atomic_load(&extent->rows_state) == SC_STORE_ROWS_FREED ? SC_STORE_PERMUTATION_FREED
                                                                   : SC_STORE_PERMUTATION_UNKNOWN;
}

uint64_t sc_store_permutation_reusable_ns(const struct sc_store *store)
{
    uint64_t lease_ns = store->params.config->lease_ns_max;
    return sc_exec_now_ns(store->params.exec) + (lease_ns > REUSE_NS_MIN ? lease_ns : REUSE_NS_MIN);
}

/* ---- Pages of pieces ------------------------------------------------------------------------- */

static bool has_rows(const struct sc_store_extent_entry *extent)
{
    return atomic_load(&extent->rows_state) == SC_STORE_ROWS_HELD;
}

/* Frees or counts pages that end with the span's piece; waiting original rows end with it too. */
static uint64_t piece_pages(const struct sc_store *store,
                            const struct sc_store_extent_entry *extent, const struct span *span,
                            struct sc_store_space *map)
{
    bool has_parts = atomic_load(&extent->rows_state) != SC_STORE_ROWS_FREED;
    if (has_parts)
        return span->alone ? rest_free(store, extent, span, map)
                           : span_free(store, extent, span, map);
    return span->alone ? sections_free(extent, map) : 0;
}

uint64_t sc_store_piece_bytes(const struct sc_store *store, uint64_t piece)
{
    const struct sc_store_piece_entry *entry = sc_store_table_live(&store->table, piece);
    if (entry == NULL)
        return 0;
    const struct sc_store_extent_entry *extent =
        sc_store_table_extent(&store->table, entry->extent);
    struct span span = span_find(store, extent, piece, true);
    uint64_t pages = sections_free(extent, NULL);
    if (atomic_load(&extent->replaced_is_void))
        pages -= derived_free(atomic_load(&extent->held_replaced), NULL);
    if (!has_rows(extent))
        return pages * PAGE / atomic_load(&extent->live_count);
    return piece_pages(store, extent, &span, NULL) * PAGE;
}

/* ---- Quarantine ----------------------------------------------------------------------------- */

/* Returns when a drop of that wall time (a future one counts as now) has waited a lease, on the
 * executor's clock. Jumps of the wall clock do not change later waits. */
static uint64_t due_of(const struct sc_store *store, uint64_t dropped_wall_ns, uint64_t now_ns)
{
    uint64_t wall_ns = sc_exec_wall_ns(store->params.exec);
    uint64_t lease_ns = store->params.config->lease_ns_max;
    uint64_t age_ns = dropped_wall_ns < wall_ns ? wall_ns - dropped_wall_ns : 0;
    return now_ns + (age_ns < lease_ns ? lease_ns - age_ns : 0);
}

/* Space lock held. Returns the pages that only the quarantine holds now. */
static uint64_t piece_quarantine(struct sc_store *store, uint64_t id)
{
    struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, id);
    struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, piece->extent);
    SC_ASSERT(store->params.poison, atomic_load(&piece->state) == SC_STORE_PIECE_DROPPED);
    extent_trim(store, piece->extent, extent);
    atomic_store(&piece->state, SC_STORE_PIECE_QUARANTINED);
    struct span span = span_find(store, extent, id, true);
    uint64_t pages = span.alone ? extent->held_pages - extent->void_pages : 0;
    if (!span.alone && has_rows(extent))
        pages = span_free(store, extent, &span, NULL);
    extent->void_pages += (uint32_t)pages;
    store->quarantine.bytes += pages * PAGE;
    SC_ASSERT(store->params.poison, extent->void_pages <= extent->held_pages);
    return pages;
}

static void piece_free(struct sc_store *store, uint64_t id)
{
    struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, id);
    struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, piece->extent);
    SC_ASSERT(store->params.poison, atomic_load(&piece->state) == SC_STORE_PIECE_QUARANTINED);
    atomic_store(&piece->state, SC_STORE_PIECE_FREED);
    atomic_fetch_sub_explicit(&store->counts.held_count, 1, memory_order_relaxed);
    atomic_fetch_sub(&sc_store_space_find(&store->log.spaces, extent->space)->held, 1);
    struct span span = span_find(store, extent, id, false);
    uint64_t pages = piece_pages(store, extent, &span, &store->disk.space);
    SC_ASSERT(store->params.poison, pages <= extent->void_pages);
    SC_ASSERT(store->params.poison, !span.alone || pages == extent->held_pages);
    if (span.alone) {
        uint64_t codes = derived_free(atomic_load(&extent->held_quant), NULL);
        atomic_fetch_sub_explicit(&store->counts.quantised_bytes, codes * PAGE,
                                  memory_order_relaxed);
        atomic_store(&extent->held_section, NULL);
        atomic_store(&extent->held_quant, NULL);
        atomic_store(&extent->held_permutation, NULL);
        atomic_store(&extent->held_replaced, NULL);
        atomic_store(&extent->replaced_is_void, false);
        /* even if its original rows wait */
        if (!has_rows(extent))
            atomic_store(&extent->rows_state, SC_STORE_ROWS_FREED);
    }
    extent->void_pages -= (uint32_t)pages;
    store->quarantine.bytes -= pages * PAGE;
    pages_gone(store, extent, pages);
}

/* Space lock held. Frees a dropped piece whose extent has no pages in the map so far. */
static void unplaced_free(struct sc_store *store, struct sc_store_piece_entry *piece)
{
    const struct sc_store_extent_entry *extent =
        sc_store_table_extent(&store->table, piece->extent);
    atomic_store(&piece->state, SC_STORE_PIECE_FREED);
    atomic_fetch_sub_explicit(&store->counts.held_count, 1, memory_order_relaxed);
    atomic_fetch_sub(&sc_store_space_find(&store->log.spaces, extent->space)->held, 1);
}

void sc_store_pages_forget(struct sc_store *store)
{
    struct sc_store_space *map = &store->disk.space;
    (void)sc_store_quarantine_release(store, UINT64_MAX);
    pthread_mutex_lock(&store->disk.lock);
    for (uint64_t id = 1;
         (id = sc_store_table_extent_from(&store->table, id)) < store->table.extent_next; id++) {
        struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, id);
        extent->is_unplaced = extent->row_count > 0;
        extent->held_pages = extent->void_pages = 0;
        extent->trimmed = false;
        atomic_store(&extent->rows_state, SC_STORE_ROWS_HELD);
        atomic_store(&extent->held_section, NULL);
        atomic_store(&extent->held_quant, NULL);
        atomic_store(&extent->held_permutation, NULL);
        atomic_store(&extent->held_replaced, NULL);
        atomic_store(&extent->replaced_is_void, false);
    }
    for (uint64_t i = 0; i < map->segment_max; i++)
        if (map->segments[i].page_count > 0)
            sc_store_space_clear(map, i);
    store->disk.extent_bytes = 0;
    store->extents_retake(store);
    atomic_store(&store->counts.quantised_bytes, 0);
    pthread_mutex_unlock(&store->disk.lock);
}

void sc_store_extent_unplace(struct sc_store *store, uint64_t id)
{
    struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, id);
    if (!sc_store_keeps_space(store))
        return;
    pthread_mutex_lock(&store->disk.lock);
    if (!extent->trimmed && !extent->is_unplaced) {
        sc_store_parts_free(store, extent->parts, extent->part_count, extent->stride);
        extent->is_unplaced = true;
    }
    pthread_mutex_unlock(&store->disk.lock);
}

void sc_store_extent_placed(struct sc_store *store, uint64_t extent)
{
    if (!sc_store_keeps_space(store) || !sc_store_follows(store))
        return;
    pthread_mutex_lock(&store->disk.lock);
    sc_store_table_extent(&store->table, extent)->is_unplaced = false;
    pthread_mutex_unlock(&store->disk.lock);
}

/* Space lock held. Adds to the newest bucket, or a new one if that spans its time. If the ring is
 * full (a clock that jumped) the newest spans more: its pieces wait longer, a lease at most. */
static void bucket_put(struct sc_store *store, uint64_t id, uint64_t due_ns)
{
    uint64_t width_ns = store->params.config->lease_ns_max / BUCKETS_LEASE;
    uint32_t newest =
        (store->quarantine.bucket_first + store->quarantine.bucket_count - 1) % SC_STORE_BUCKETS;
    struct sc_store_bucket *bucket = &store->quarantine.buckets[newest];
    if (store->quarantine.bucket_count == 0 ||
        (due_ns > bucket->begin_ns + width_ns &&
         store->quarantine.bucket_count < SC_STORE_BUCKETS)) {
        bucket = &store->quarantine
                      .buckets[(store->quarantine.bucket_first + store->quarantine.bucket_count) %
                               SC_STORE_BUCKETS];
        *bucket = (struct sc_store_bucket){.begin_ns = due_ns};
        store->quarantine.bucket_count++;
    }
    bucket->due_ns = bucket->due_ns > due_ns ? bucket->due_ns : due_ns;
    sc_store_table_piece(&store->table, id)->next = 0;
    if (bucket->head == 0)
        bucket->head = (uint32_t)id;
    else
        sc_store_table_piece(&store->table, bucket->tail)->next = (uint32_t)id;
    bucket->tail = (uint32_t)id;
}

uint64_t sc_store_quarantine_add(struct sc_store *store, const uint64_t *pieces, uint64_t count,
                                 uint64_t dropped_wall_ns)
{
    uint64_t now_ns = sc_exec_now_ns(store->params.exec), pages = 0;
    uint64_t due_ns = due_of(store, dropped_wall_ns, now_ns);
    if (!sc_store_keeps_space(store))
        return 0;
    for (uint64_t i = 0; i < count;) {
        pthread_mutex_lock(&store->disk.lock);
        for (uint64_t end = i + AT_ONCE; i < count && i < end; i++) {
            struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, pieces[i]);
            if (sc_store_table_extent(&store->table, piece->extent)->is_unplaced) {
                unplaced_free(store, piece);
                continue;
            }
            pages += piece_quarantine(store, pieces[i]);
            if (due_ns <= now_ns)
                piece_free(store, pieces[i]);
            else
                bucket_put(store, pieces[i], due_ns);
        }
        pthread_mutex_unlock(&store->disk.lock);
    }
    return pages * PAGE;
}

/* Space lock held. Voids the copy of the rows before the newest. Returns its pages. */
static uint64_t rows_void(struct sc_store_extent_entry *extent)
{
    const struct sc_store_section *replaced = atomic_load(&extent->held_replaced);
    uint64_t sections = sections_free(extent, NULL), pages = derived_free(replaced, NULL);
    uint64_t live = extent->held_pages - extent->void_pages;
    if (replaced != NULL) {
        bool is_live = !atomic_load(&extent->replaced_is_void) && live >= pages;
        atomic_store(&extent->replaced_is_void, true);
        return is_live ? pages : 0;
    }
    if (!has_rows(extent) || live <= sections)
        return 0;
    atomic_store(&extent->rows_state, SC_STORE_ROWS_VOID);
    return live - sections;
}

/* Space lock held. Adds the extent to the list, if it is not there. */
static void rows_put(struct sc_store *store, uint64_t id, struct sc_store_extent_entry *extent)
{
    struct sc_store_quarantine *quarantine = &store->quarantine;
    if (extent->rows_wait)
        return;
    extent->rows_wait = true;
    extent->rows_next = 0;
    if (quarantine->rows_first == 0)
        quarantine->rows_first = (uint32_t)id;
    else
        sc_store_table_extent(&store->table, quarantine->rows_last)->rows_next = (uint32_t)id;
    quarantine->rows_last = (uint32_t)id;
}

uint64_t sc_store_rows_quarantine(struct sc_store *store, uint64_t id, uint64_t dropped_wall_ns)
{
    struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, id);
    uint64_t now_ns = sc_exec_now_ns(store->params.exec), pages = 0;
    if (!sc_store_keeps_space(store))
        return 0;
    pthread_mutex_lock(&store->disk.lock);
    extent_trim(store, id, extent);
    pages = rows_void(extent);
    if (pages > 0) {
        extent->void_pages += (uint32_t)pages;
        store->quarantine.bytes += pages * PAGE;
        extent->rows_due_ns = due_of(store, dropped_wall_ns, now_ns);
        if (extent->rows_due_ns <= now_ns)
            rows_free(store, id);
        else
            rows_put(store, id, extent);
    }
    pthread_mutex_unlock(&store->disk.lock);
    return pages * PAGE;
}

void sc_store_rows_leave(struct sc_store *store, uint64_t extent)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    if (sc_store_log_sync(store, &error) == SPEC_OK)
        (void)sc_store_rows_quarantine(store, extent, UINT64_MAX);
    else
        SC_LOG(store->params.log, 1, "extent %" PRIu64 ": rows that are void stay on the disk: %s",
               extent, error.text);
}

/* Space lock held. Frees due copies of rows, oldest first; each counts as its pieces. */
static uint64_t rows_release(struct sc_store *store, uint64_t now_ns, uint64_t count_max)
{
    uint64_t count = 0;
    while (store->quarantine.rows_first != 0 && count < count_max) {
        uint64_t id = store->quarantine.rows_first;
        struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, id);
        if (extent->rows_due_ns > now_ns)
            break;
        store->quarantine.rows_first = extent->rows_next;
        extent->rows_wait = false;
        rows_free(store, id);
        count += extent->piece_last - extent->piece_first + 1;
    }
    return count;
}

uint64_t sc_store_quarantine_release_some(struct sc_store *store, uint64_t now_ns,
                                          uint64_t count_max)
{
    uint64_t count = 0;
    while (store->quarantine.bucket_count > 0 && count < count_max) {
        struct sc_store_bucket *bucket = &store->quarantine.buckets[store->quarantine.bucket_first];
        if (bucket->due_ns > now_ns)
            break;
        uint32_t id = bucket->head;
        bucket->head = sc_store_table_piece(&store->table, id)->next;
        if (bucket->head == 0) {
            store->quarantine.bucket_first =
                (store->quarantine.bucket_first + 1) % SC_STORE_BUCKETS;
            store->quarantine.bucket_count--;
        }
        piece_free(store, id);
        count++;
    }
    return count + rows_release(store, now_ns, count_max - count);
}

uint64_t sc_store_quarantine_release(struct sc_store *store, uint64_t now_ns)
{
    uint64_t count = 0, now;
    do {
        pthread_mutex_lock(&store->disk.lock);
        now = sc_store_quarantine_release_some(store, now_ns, AT_ONCE);
        pthread_mutex_unlock(&store->disk.lock);
        count += now;
    } while (now >= AT_ONCE);
    return count;
}

uint64_t sc_store_quarantine_oldest_ns(struct sc_store *store)
{
    const struct sc_store_quarantine *quarantine = &store->quarantine;
    uint64_t ns = UINT64_MAX;
    pthread_mutex_lock(&store->disk.lock);
    if (quarantine->bucket_count > 0)
        ns = quarantine->buckets[quarantine->bucket_first].due_ns;
    if (quarantine->rows_first != 0) {
        uint64_t rows_ns =
            sc_store_table_extent(&store->table, quarantine->rows_first)->rows_due_ns;
        ns = rows_ns < ns ? rows_ns : ns;
    }
    pthread_mutex_unlock(&store->disk.lock);
    return ns;
}

/* ---- Dropping ------------------------------------------------------------------------------- */

/* Log lock held. In a follower no lease reads the piece any more. Returns false if it was not
 * LIVE. */
static bool piece_void(struct sc_store *store, struct sc_store_piece_entry *piece)
{
    return sc_store_apply_void(
        store, piece, sc_store_keeps_space(store) ? SC_STORE_PIECE_DROPPED : SC_STORE_PIECE_FREED);
}

/* Finishes drops whose records are in the log. */
static uint64_t dropped_end(struct sc_store *store, const uint64_t *pieces, uint64_t count)
{
    sc_store_log_unreserve(store, count * SC_STORE_DROP_BYTES);
    /* From now, not from the records' time: a follower may have looked in between. */
    return sc_store_quarantine_add(store, pieces, count, UINT64_MAX);
}

/* Log lock held. Lists the LIVE ones, each once. */
static uint64_t live_list(const struct sc_store *store, const uint64_t *pieces, uint64_t count,
                          uint64_t *ret_live)
{
    uint64_t live_count = 0;
    for (uint64_t i = 0; i < count; i++) {
        bool is_listed = false;
        for (uint64_t j = 0; j < i && !is_listed; j++)
            is_listed = pieces[j] == pieces[i];
        if (!is_listed && sc_store_table_live(&store->table, pieces[i]) != NULL)
            ret_live[live_count++] = pieces[i];
    }
    return live_count;
}

/* Log lock held. */
static spec_status drops_append(struct sc_store *store, const uint64_t *pieces, uint64_t count)
{
    struct sc_store_append append;
    uint64_t at_ns = sc_exec_wall_ns(store->params.exec);
    sc_store_append_begin(store, &append);
    for (uint64_t i = 0; i < count; i++) {
        sc_store_append_frame(&append);
        sc_store_record_encode_drop(&append.writer, pieces[i], at_ns);
    }
    return sc_store_append_commit(store, &append, NULL);
}

/* Drops up to AT_ONCE pieces in one append. Returns the bytes to be freed. If it fails, the pieces
 * live again after a reopen: they keep their pages until a later drop writes the records. */
static uint64_t drop_some(struct sc_store *store, const uint64_t *pieces, uint64_t count)
{
    uint64_t dropped[AT_ONCE], dropped_count = 0;
    spec_status status = SPEC_OK;
    sc_store_log_enter(store);
    bool writes = sc_store_can_store(store); /* an heir that takes over lists what it has not */
    bool waits = sc_store_turn_is_reading(store);
    do {
        dropped_count = live_list(store, pieces, count, dropped);
        if (writes && !waits && dropped_count > 0)
            status = drops_append(store, dropped, dropped_count);
    } while (sc_store_log_again(store, &status, NULL));
    for (uint64_t i = 0; i < dropped_count; i++)
        (void)piece_void(store, sc_store_table_piece(&store->table, dropped[i]));
    for (uint64_t i = 0; i < dropped_count && writes && (waits || status != SPEC_OK); i++) {
        sc_store_table_piece(&store->table, dropped[i])->next = store->log.unwritten;
        store->log.unwritten = (uint32_t)dropped[i];
    }
    sc_store_log_leave(store);
    if (!writes || waits || dropped_count == 0)
        return 0;
    if (status != SPEC_OK) {
        sc_store_pause(store, status, "dropping");
        return 0;
    }
    return dropped_end(store, dropped, dropped_count);
}

/* Writes drop records that an earlier append failed to write. Returns the bytes to be freed. */
static uint64_t drop_again(struct sc_store *store)
{
    uint64_t again[AT_ONCE], listed[AT_ONCE], count, void_count;
    const struct sc_store_piece_entry *piece;
    spec_status status;
    uint32_t id;
    pthread_mutex_lock(&store->log.lock);
    bool has_some = store->log.unwritten != 0;
    pthread_mutex_unlock(&store->log.lock);
    if (!has_some) /* as at most ticks: no turn, which looks at the log */
        return 0;
    sc_store_log_enter(store);
    do {
        count = void_count = 0;
        status = sc_store_turn_is_reading(store) ? SPEC_E_BUSY : SPEC_OK;
        for (id = store->log.unwritten; id != 0 && count + void_count < AT_ONCE; id = piece->next) {
            piece = sc_store_table_piece(&store->table, id);
            listed[count + void_count] = id;
            if (piece->extent != 0)
                again[count++] = id;
            else
                void_count++;
        }
        if (status == SPEC_OK && count + void_count > 0)
            status = drops_append(store, listed, count + void_count);
    } while (sc_store_log_again(store, &status, NULL));
    if (status == SPEC_OK)
        store->log.unwritten = id;
    sc_store_log_leave(store);
    if (status != SPEC_OK)
        return 0;
    sc_store_log_unreserve(store, void_count * SC_STORE_DROP_BYTES);
    return dropped_end(store, again, count);
}

uint64_t sc_store_pieces_drop_bytes(struct sc_store *store, const uint64_t *pieces, uint64_t count)
{
    uint64_t bytes = sc_store_can_store(store) ? drop_again(store) : 0;
    for (uint64_t i = 0; i < count; i += AT_ONCE)
        bytes += drop_some(store, pieces + i, count - i < AT_ONCE ? count - i : AT_ONCE);
    return bytes;
}

void sc_store_pieces_drop(struct sc_store *store, const uint64_t *pieces, uint64_t count)
{
    (void)sc_store_pieces_drop_bytes(store, pieces, count);
}

void sc_store_piece_void(struct sc_store *store, uint64_t id)
{
    pthread_mutex_lock(&store->log.lock);
    struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, id);
    if (piece_void(store, piece) && sc_store_can_store(store)) {
        piece->next = store->log.unwritten;
        store->log.unwritten = (uint32_t)id;
    }
    pthread_mutex_unlock(&store->log.lock);
}

void sc_store_piece_drop(struct sc_store *store, uint64_t piece)
{
    (void)sc_store_pieces_drop_bytes(store, &piece, 1);
}

uint64_t sc_store_pieces_void(struct sc_store *store, uint32_t space, uint64_t piece_end,
                              uint64_t wall_ns)
{
    uint64_t voided[AT_ONCE], total = 0, id = 1;
    if (sc_store_keeps_space(store)) { /* unknown namespace: no pieces */
        pthread_mutex_lock(&store->log.lock);
        struct sc_store_shape *shape = sc_store_space_find(&store->log.spaces, space);
        id = shape != NULL ? atomic_load(&shape->void_end)
                           : piece_end; /* of no namespace there are no pieces */
        if (shape != NULL)
            atomic_store(&shape->void_end, piece_end);
        pthread_mutex_unlock(&store->log.lock);
    }
    while (id < piece_end) {
        uint64_t count = 0, looked = 0;
        pthread_mutex_lock(&store->log.lock);
        for (; id < piece_end && count < AT_ONCE && looked < SC_STORE_TABLE_SLAB; looked++) {
            id = sc_store_table_piece_from(&store->table, id);
            if (id >= piece_end)
                break;
            struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, id);
            const struct sc_store_extent_entry *extent =
                sc_store_table_extent(&store->table, piece->extent);
            if (extent != NULL && extent->space == space &&
                (piece_void(store, piece) || failed_here(store, piece)))
                voided[count++] = id;
            id++;
        }
        pthread_mutex_unlock(&store->log.lock);
        if (count == 0)
            continue;
        if (sc_store_keeps_space(store))
            sc_store_log_unreserve(store, count * SC_STORE_DROP_BYTES);
        (void)sc_store_quarantine_add(store, voided, count, wall_ns);
        total += count;
    }
    return total;
}

/* Log lock held. Voids a piece of an erased extent. Returns true if it was LIVE. */
static bool piece_erase(struct sc_store *store, struct sc_store_piece_entry *piece)
{
    const struct sc_store_extent_entry *extent =
        sc_store_table_extent(&store->table, piece->extent);
    if (piece->extent == 0 || !atomic_load(&extent->is_erased))
        return false;
    if (piece_void(store, piece))
        return true;
    if (!sc_store_keeps_space(store) && atomic_load(&piece->state) == SC_STORE_PIECE_DROPPED)
        atomic_store(&piece->state, SC_STORE_PIECE_FREED);
    return false;
}

/* Quarantines voided pieces; erased_map treats their pages as free already. */
static void erased_end(struct sc_store *store, const uint64_t *pieces, uint64_t count,
                       void (*on_gone)(uint64_t piece, uint64_t mark, void *user), void *user)
{
    uint32_t own = atomic_load(&store->log.space_id);
    if (count > 0 && sc_store_keeps_space(store)) {
        sc_store_log_unreserve(store, count * SC_STORE_DROP_BYTES);
        (void)sc_store_quarantine_add(store, pieces, count, UINT64_MAX);
    }
    for (uint64_t i = 0; i < count && on_gone != NULL; i++) {
        const struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, pieces[i]);
        if (sc_store_table_extent(&store->table, piece->extent)->space == own)
            on_gone(pieces[i], atomic_load_explicit(&piece->mark, memory_order_relaxed), user);
    }
}

void sc_store_pieces_erase(struct sc_store *store,
                           void (*on_gone)(uint64_t piece, uint64_t mark, void *user), void *user)
{
    uint64_t voided[AT_ONCE];
    for (uint64_t id = 1, end = 1; id <= end;) {
        uint64_t count = 0, looked = 0;
        pthread_mutex_lock(&store->log.lock);
        end = store->table.piece_next;
        for (; id < end && count < AT_ONCE && looked < SC_STORE_TABLE_SLAB; looked++) {
            id = sc_store_table_piece_from(&store->table, id);
            if (id < end && piece_erase(store, sc_store_table_piece(&store->table, id)))
                voided[count++] = id;
            id = id < end ? id + 1 : end;
        }
        pthread_mutex_unlock(&store->log.lock);
        erased_end(store, voided, count, on_gone, user);
        if (id >= end)
            return;
    }
}

/* Space lock held. */
static void erased_free(struct sc_store *store, const struct sc_store_extent_entry *extent,
                        uint64_t id, struct sc_store_space *map)
{
    uint64_t pages = sections_free(extent, map);
    if (atomic_load(&extent->rows_state) != SC_STORE_ROWS_FREED)
        pages += parts_free(store, id, extent, map);
    SC_ASSERT(store->params.poison, pages == extent->held_pages);
}

bool sc_store_erased_map(struct sc_store *store, struct sc_store_space *ret_map)
{
    const struct sc_store_table *table = &store->table;
    for (uint32_t is_copied = 0; is_copied < 2; is_copied++) {
        if (is_copied == 1 && !sc_store_space_copy(&store->disk.space, false, ret_map))
            return false;
        for (uint64_t id = 1; (id = sc_store_table_extent_from(table, id)) < table->extent_next;
             id++) {
            struct sc_store_extent_entry *extent = sc_store_table_extent(table, id);
            if (!atomic_load(&extent->is_erased))
                continue;
            if (is_copied == 0)
                extent_trim(store, id, extent);
            else if (extent->held_pages > 0)
                erased_free(store, extent, id, ret_map);
        }
    }
    return true;
}
