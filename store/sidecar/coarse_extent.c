/* Rows that go while their codes stay.
 *
 *   extent   [rows, tags, padding: all its pages]   ROWS_HELD
 *   codes    [an annex of its own]
 *            check   every block of every live piece is read back, layer by layer
 *            mark    coarse_ns = soon: requests that begin from now on ask for no rows
 *            commit  codes synced, then the record (9): coarse_ns = its time
 *   extent   [.... wait for leases ....] ROWS_VOID  -> ROWS_FREED     codes stay
 *
 * Holds: no record without codes that were read back and synced; the record is in the log before a
 * page is free, and pages are free lease_ns_max after it (quarantine.c); what an extent is marked
 * as is seen by whoever pins after its marker has looked for pins (decision 0010).
 * Does not: choose extents, look for pins (plugin/index/evict.c).
 * Threads: one caller at a time; is_coarse and marks any.
 * Tests: tests/unit/store/test_coarse.c, tests/unit/plugin/test_coarse.c */
#include "store/place/coarse_mark.h"
#include "store/place/tier.h"
#include "store/rows/codes.h"
#include "store/rows/where.h"

/* ---- Finding -------------------------------------------------------------------------------- */

/* Takes no lock: who asks holds the index', and lookups wait for that, while a checkpoint may sync
 * under the log's. What is found is looked at again before the record is written. */
struct sc_store_coarse_extent sc_store_coarse_find(struct sc_store *store, uint64_t id)
{
    struct sc_store_coarse_extent found = {0};
    const struct sc_store_piece_entry *piece = sc_store_table_live(&store->table, id);
    if (store->params.role != SC_STORE_WRITER || piece == NULL)
        return found;
    struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, piece->extent);
    uint32_t kept = atomic_load(&extent->coarse_kept);
    bool is_kept = kept != 0 && sc_store_table_live(&store->table, kept) != NULL;
    if (extent->space == atomic_load(&store->log.space_id) && !is_kept &&
        atomic_load(&extent->coarse_ns) == 0 && atomic_load(&extent->codes) != NULL)
        found = (struct sc_store_coarse_extent){.id = piece->extent,
                                                .live_count = atomic_load(&extent->live_count),
                                                .piece_first = extent->piece_first,
                                                .piece_last = extent->piece_last};
    return found;
}

/* The piece has no good codes, and will not get any while it is there. */
static void keep_rows(struct sc_store *store, uint64_t extent, uint64_t piece)
{
    atomic_store(&sc_store_table_extent(&store->table, extent)->coarse_kept, (uint32_t)piece);
}

/* ---- Reading back --------------------------------------------------------------------------- */

/* K's and V's block of the piece; layer: the bytes of one. */
static bool piece_holds(const struct sc_store *store, const struct sc_store_extent_entry *extent,
                        const struct sc_store_annex *annex, uint32_t layer,
                        const struct sc_store_piece_entry *piece, const uint8_t *bytes)
{
    const struct sc_store_code_shape *shape = &annex->code_shape;
    struct sc_store_blocks blocks;
    sc_store_codes_blocks(store, extent, annex->copy, shape, piece, &blocks);
    return sc_store_codes_fit(annex, &blocks) &&
           sc_store_block_check(store, &blocks, shape, layer, SC_STORE_PART_K,
                                bytes + blocks.k_at) == SC_STORE_BLOCK_CODED &&
           sc_store_block_check(store, &blocks, shape, layer, SC_STORE_PART_V,
                                bytes + blocks.v_at) == SC_STORE_BLOCK_CODED;
}

spec_status sc_store_coarse_check(struct sc_store *store, uint64_t id, uint32_t layer)
{
    const struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, id);
    const struct sc_store_annex *annex = atomic_load_explicit(&extent->codes, memory_order_acquire);
    struct sc_store_where where =
        sc_store_layer_where(annex->parts, annex->part_count, annex->stride, layer);
    struct sc_store_pages pages = sc_store_pages_of(where.offset, where.offset + annex->stride);
    uint8_t *memory = sc_alloc_aligned(store->params.alloc, pages.bytes, SC_IO_PAGE_BYTES);
    if (memory == NULL)
        return SPEC_E_NO_MEMORY;
    where.offset = pages.offset;
    spec_status status = sc_store_tier_read_now(store, memory, where, pages.bytes, NULL);
    for (uint64_t i = extent->piece_first; i <= extent->piece_last && status == SPEC_OK; i++) {
        const struct sc_store_piece_entry *piece = sc_store_table_live(&store->table, i);
        if (piece == NULL || piece->extent != id ||
            piece_holds(store, extent, annex, layer, piece, memory + pages.in))
            continue;
        keep_rows(store, id, i);
        status = SPEC_E_CORRUPT;
    }
    sc_alloc_free(store->params.alloc, memory);
    return status;
}

/* ---- Marking -------------------------------------------------------------------------------- */

void sc_store_coarse_mark(struct sc_store *store, uint64_t id)
{
    struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, id);
    SC_ASSERT(store->params.poison, atomic_load(&extent->coarse_ns) == 0);
    atomic_store(&extent->coarse_ns, SC_STORE_COARSE_SOON);
}

void sc_store_coarse_unmark(struct sc_store *store, uint64_t id)
{
    struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, id);
    SC_ASSERT(store->params.poison, atomic_load(&extent->coarse_ns) == SC_STORE_COARSE_SOON);
    atomic_store(&extent->coarse_ns, 0);
}

uint64_t sc_store_coarse_marks(const struct sc_store *store)
{
    return atomic_load(&store->counts.coarse_marks);
}

bool sc_store_piece_is_coarse(const struct sc_store *store, uint64_t id, uint64_t expiry_ns)
{
    const struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, id);
    if (piece == NULL || piece->extent == 0)
        return false;
    uint64_t coarse_ns =
        atomic_load(&sc_store_table_extent(&store->table, piece->extent)->coarse_ns);
    uint64_t lease_ns = store->params.config->lease_ns_max;
    if (coarse_ns == 0 || expiry_ns == 0)
        return coarse_ns != 0;
    return coarse_ns < UINT64_MAX - lease_ns && expiry_ns > coarse_ns + lease_ns;
}

void sc_store_piece_unread(struct sc_store *store, uint64_t id)
{
    const struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, id);
    if (piece == NULL || piece->extent == 0)
        return;
    _Atomic uint64_t *from = &sc_store_table_extent(&store->table, piece->extent)->unread_from;
    uint64_t old = atomic_load(from);
    while ((old == 0 || id < old) && !atomic_compare_exchange_weak(from, &old, id))
        ;
}

bool sc_store_piece_is_unread(const struct sc_store *store, uint64_t id)
{
    const struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, id);
    if (piece == NULL || piece->extent == 0)
        return false;
    uint64_t from = atomic_load(&sc_store_table_extent(&store->table, piece->extent)->unread_from);
    return from != 0 && id >= from;
}

/* ---- The record ----------------------------------------------------------------------------- */

/* Log lock held. */
static spec_status coarse_append(struct sc_store *store, uint64_t id, struct spec_error *reterr)
{
    struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, id);
    const struct sc_store_code_shape *shape = &atomic_load(&extent->codes)->code_shape;
    struct sc_store_record_coarse record = {.at_ns = sc_exec_wall_ns(store->params.exec),
                                            .bits_k = shape->bits_k,
                                            .bits_v = shape->bits_v};
    struct sc_store_append append;
    if (extent->live_count == 0)
        return sc_fail(reterr, SPEC_E_DROPPED, "its pieces are void");
    sc_store_append_begin(store, &append);
    sc_store_append_frame(&append);
    sc_store_record_put_coarse(&append.writer, id, &record);
    spec_status status = sc_store_append_commit(store, &append, reterr);
    if (status == SPEC_OK)
        sc_store_coarse_set(store, extent, &record);
    return status;
}

spec_status sc_store_coarse_commit(struct sc_store *store, uint64_t id, struct spec_error *reterr)
{
    const struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, id);
    SC_ASSERT(store->params.poison, atomic_load(&extent->coarse_ns) == SC_STORE_COARSE_SOON);
    const struct sc_store_annex *codes = atomic_load(&extent->codes);
    spec_status status = sc_store_tier_sync(store, codes->parts, codes->part_count, reterr);
    if (status == SPEC_OK && !sc_store_log_reserve(store, SC_STORE_COARSE_BYTES))
        return sc_fail(reterr, SPEC_E_NO_SPACE, "%s: no room for the log in disk_bytes",
                       store->dir);
    if (status != SPEC_OK)
        return status;
    pthread_mutex_lock(&store->log.lock);
    status = coarse_append(store, id, reterr);
    pthread_mutex_unlock(&store->log.lock);
    sc_store_log_unreserve(store, SC_STORE_COARSE_BYTES);
    if (status == SPEC_OK) /* from now: a follower may have looked in between */
        sc_store_rows_leave(store, id);
    else if (status != SPEC_E_DROPPED)
        sc_store_pause(store, status, "writing the log");
    return status;
}
