/* What is known of an extent whose rows go, or went, while its codes stay (coarse_extent.c): its
 * mark, and what its pieces are worth.
 *
 * Threads: the log lock, or replay; sc_store_coarse_worth any.
 * Tests: tests/unit/store/test_coarse.c */
#include "store/place/coarse_mark.h"
#include "store/internal.h"

void sc_store_coarse_marked(struct sc_store *store)
{
    atomic_fetch_add(&store->counts.coarse_marks, 1);
}

void sc_store_coarse_set(struct sc_store *store, struct sc_store_extent_entry *extent,
                         const struct sc_store_record_coarse *record)
{
    if (atomic_load(&extent->codes) == NULL) { /* else they are read while it is marked */
        extent->bits_k = (uint8_t)record->bits_k;
        extent->bits_v = (uint8_t)record->bits_v;
    }
    atomic_store(&extent->coarse_ns, record->at_ns > 0 ? record->at_ns : 1);
    sc_store_count(&store->counts.coarse_pieces, extent->live_count);
    if (store->rows_gone != NULL)
        store->rows_gone(store, extent);
}

void sc_store_coarse_piece_gone(struct sc_store *store, const struct sc_store_extent_entry *extent)
{
    uint64_t coarse_ns = atomic_load(&extent->coarse_ns);
    if (coarse_ns != 0 && coarse_ns != SC_STORE_COARSE_SOON)
        atomic_fetch_sub_explicit(&store->counts.coarse_pieces, 1, memory_order_relaxed);
}

static uint32_t bits_fewer(uint32_t a, uint32_t b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

void sc_store_coarse_worth(const struct sc_store_extent_entry *extent,
                           struct sc_store_provenance *provenance)
{
    const struct sc_store_annex *annex = atomic_load_explicit(&extent->codes, memory_order_acquire);
    provenance->held = SC_STORE_HELD_MAX;
    provenance->bits_k =
        bits_fewer(provenance->bits_k, annex != NULL ? annex->code_shape.bits_k : extent->bits_k);
    provenance->bits_v =
        bits_fewer(provenance->bits_v, annex != NULL ? annex->code_shape.bits_v : extent->bits_v);
    provenance->exact_ppm = 0;
}
