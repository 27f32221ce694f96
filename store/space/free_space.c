/* free_space: measures free space, and evicts pieces that no lookup of this connector can find.
 *
 *   disk_bytes   [fixed | the log's room | segments: held | quarantine | free | ... ]
 *                                         not created yet: counts as free ----^
 *
 * Invariants: free_bytes counts pages in runs that hold a chunk's layer, so eviction does not stop
 * at fragments. bytes_max is what segments can hold.
 * Threads: any; evicting on an executor's.
 * Tests: tests/unit/store/test_quarantine.c */
#include "store/internal.h"
#include "store/log/hints.h"
#include "store/log/where.h"
#include "store/rows/quant_blocks.h"
#include "store/space/claims.h"

#define PAGE             ((uint64_t)SC_IO_PAGE_BYTES)
#define SEGMENTS_AT_ONCE 16u /* examined per lock hold: 16 x 64 MiB are 4,096 words */
#define EVICT_STEP       64u /* pieces dropped between counts of bytes */

static uint64_t layer_bytes(const struct sc_store *store, uint64_t rows)
{
    return sc_store_shape_place(&store->shape, store->params.probe_row_bytes, rows).stride;
}

uint64_t sc_store_rows_bytes(const struct sc_store *store, uint64_t rows)
{
    return sc_store_up(layer_bytes(store, rows) * store->shape.layer_count, PAGE);
}

uint64_t sc_store_free_space_bytes(const struct sc_store *store, uint64_t rows)
{
    uint64_t codes = sc_store_quant_layer_new(store, 0, rows) * store->shape.layer_count;
    return sc_store_rows_bytes(store, rows) + sc_store_up(codes, PAGE);
}

void sc_store_free_space_missed(struct sc_store *store, uint64_t rows)
{
    pthread_mutex_lock(&store->disk.lock);
    sc_store_reserve_add(store, sc_store_free_space_bytes(store, rows));
    pthread_mutex_unlock(&store->disk.lock);
}

/* ---- Room ------------------------------------------------------------------------------------ */

bool sc_store_is_paused(struct sc_store *store)
{
    pthread_mutex_lock(&store->disk.lock);
    bool is_paused = sc_exec_now_ns(store->params.exec) < store->disk.retry_ns;
    pthread_mutex_unlock(&store->disk.lock);
    return is_paused;
}

/* Space lock held. Returns what segments can hold; ret_makeable: what new segments can. */
static uint64_t bytes_most(struct sc_store *store, uint64_t *ret_makeable)
{
    uint64_t makeable = sc_store_segment_room(store);
    /* whole segments, and a last shorter one */
    uint64_t rest = makeable % store->params.config->segment_bytes;
    *ret_makeable = makeable - (rest < SC_STORE_SEGMENT_MIN ? rest : 0);
    return store->disk.segment_bytes + *ret_makeable;
}

uint64_t sc_store_free_space_most(struct sc_store *store)
{
    uint64_t makeable;
    if (!sc_store_can_store(store))
        return 0;
    pthread_mutex_lock(&store->disk.lock);
    uint64_t bytes = bytes_most(store, &makeable);
    pthread_mutex_unlock(&store->disk.lock);
    return bytes;
}

void sc_store_free_space(struct sc_store *store, struct sc_store_free_space *ret_room)
{
    struct sc_store_free_space room = {0};
    *ret_room = room;
    if (!sc_store_can_store(store))
        return;
    (void)sc_store_quarantine_release(store, sc_exec_now_ns(store->params.exec));
    uint64_t bytes = layer_bytes(store, store->params.config->chunk_tokens), pages;
    uint64_t piece_next = sc_store_piece_next(store);
    for (uint64_t i = 0; i < store->disk.segment_max;) { /* host calls wait for a few at most */
        pthread_mutex_lock(&store->disk.lock);
        for (uint64_t end = i + SEGMENTS_AT_ONCE; i < end && i < store->disk.segment_count; i++) {
            if (!sc_store_segment_may_take(store, i))
                continue;
            (void)sc_store_space_fit(&store->disk.space, i, bytes, UINT64_MAX, &pages);
            room.free_bytes += pages * PAGE;
        }
        i = i < store->disk.segment_count ? i : store->disk.segment_max;
        pthread_mutex_unlock(&store->disk.lock);
    }
    pthread_mutex_lock(&store->disk.lock);
    uint64_t makeable;
    room.bytes_max = bytes_most(store, &makeable);
    room.free_bytes += makeable;
    room.quarantine_bytes = store->quarantine.bytes;
    sc_store_reserve_look(store, piece_next, &room.demand_bytes, &room.piece_new);
    pthread_mutex_unlock(&store->disk.lock);
    room.is_paused = sc_store_is_paused(store);
    room.log_pieces_over = sc_store_log_pieces_over(store);
    *ret_room = room;
}

bool sc_store_layers_fit(struct sc_store *store, uint64_t bytes, uint64_t layers)
{
    uint64_t room = sc_store_segment_room(store), most = store->params.config->segment_bytes;
    uint64_t count = 0, pages;
    for (; room >= SC_STORE_SEGMENT_MIN && count < layers; room -= room < most ? room : most)
        count += (room < most ? room : most) / bytes;
    for (uint64_t i = 0; i < store->disk.segment_count && count < layers; i++)
        if (sc_store_segment_may_take(store, i))
            count += sc_store_space_fit(&store->disk.space, i, bytes, layers - count, &pages);
    return count >= layers;
}

/* Space lock held. Returns true if all layers of `extents` extents and their quantised rows fit.
 * Extents share no page, so several are counted in whole pages. */
static bool rows_fit(struct sc_store *store, uint64_t rows, uint64_t extents)
{
    uint64_t bytes = layer_bytes(store, rows), layers = extents * store->shape.layer_count;
    uint64_t codes = layers * sc_store_quant_layer_new(store, 0, rows);
    bytes = extents > 1 ? sc_store_up(bytes, PAGE) : bytes;
    return sc_store_layers_fit(store, bytes, layers + (codes + bytes - 1) / bytes);
}

uint64_t sc_store_extent_rows_fit(struct sc_store *store, uint64_t row_count)
{
    uint64_t chunk = store->params.config->chunk_tokens;
    uint64_t rows = row_count < store->limits.rows_max ? row_count : store->limits.rows_max;
    if (!sc_store_can_store(store))
        return 0;
    uint64_t now_ns = sc_exec_now_ns(store->params.exec);
    uint64_t least = (row_count + store->limits.rows_max - 1) / store->limits.rows_max;
    uint64_t most = store->limits.pass_extents_max;
    most = most > least ? most : least;
    pthread_mutex_lock(&store->disk.lock);
    (void)sc_store_quarantine_release_some(store, now_ns, SC_STORE_RELEASE_MAX);
    while (rows > 0 && !rows_fit(store, rows, (row_count + rows - 1) / rows)) {
        rows = rows > chunk ? sc_store_up(rows / 2, chunk) : 0;
        if (rows > 0 && (row_count + rows - 1) / rows > most)
            rows = 0;
    }
    pthread_mutex_unlock(&store->disk.lock);
    return rows;
}

/* Returns the next LIVE piece of another namespace without a living member from *id on, 0: none;
 * moves *id past it. */
static uint64_t unreachable_next(const struct sc_store *store, const struct sc_store_living *living,
                                 uint64_t *id, uint64_t end)
{
    uint32_t own = atomic_load(&store->log.space_id);
    for (uint64_t now; (now = sc_store_table_piece_from(&store->table, *id)) < end;) {
        const struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, now);
        *id = now + 1;
        if (atomic_load_explicit(&piece->state, memory_order_acquire) != SC_STORE_PIECE_LIVE)
            continue;
        uint32_t space = sc_store_table_extent(&store->table, piece->extent)->space;
        if (space == own)
            continue;
        if (living->count == 0 ||
            !sc_store_model_lives(living, sc_store_space_of(&store->log.spaces, space)->digest))
            return now;
    }
    *id = end;
    return 0;
}

uint64_t sc_store_evict_unreachable(struct sc_store *store, uint64_t bytes)
{
    uint64_t pieces[EVICT_STEP], total = 0, given = 0;
    uint64_t id = sc_store_counted(&store->quarantine.evict_next), end = sc_store_piece_next(store);
    struct sc_store_living living;
    if (!sc_store_can_store(store))
        return 0;
    sc_store_models_living(store, &living);
    if (living.sum != atomic_exchange(&store->quarantine.evict_living, living.sum))
        id = 0; /* rows of a model whose members ended were passed over */
    while (given < bytes && id < end) {
        uint64_t count = 0;
        while (count < EVICT_STEP &&
               (pieces[count] = unreachable_next(store, &living, &id, end)) != 0)
            count++;
        given += sc_store_pieces_drop_bytes(store, pieces, count);
        total += count;
    }
    /* Older pieces are this namespace's own, a living model's, or dropped: not examined again. */
    atomic_store_explicit(&store->quarantine.evict_next, id < end ? id : end, memory_order_relaxed);
    sc_store_count(&store->counts.evicted_pieces, total);
    return total;
}
