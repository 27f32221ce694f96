/* permute_extent: commits an extent's permuted copy of its rows. Contract: permute_extent.h.
 *
 *   written   all writes ended; synced
 *   found     extent->permutation is set: loads planned from now on read it   both copies exist
 *   quiet     no load that was planned before is reading      (params.permutation.is_quiet)
 *   records   slots, layer by layer, then the section         the log has one copy or the other
 *   void      the copy before waits for leases; it is the extent's own pages (ROWS_VOID ->
 *             ROWS_FREED), or the permuted copy before (held_replaced)
 *
 * Invariants: records follow the sync of their rows, which agreed with their tags. A crash leaves
 * one whole copy of the rows. Pages are free lease_ns_max after the record (quarantine.c). */
#include "store/section/permute_extent.h"

#include "store/rows/row_permutation.h"
#include "store/space/tier.h"

/* One append per record, since all may exceed an append. The section's record is last; without it
 * the others have no effect. Log lock held. */
static spec_status permutation_append(struct sc_store *store,
                                      const struct sc_store_section *derived, uint64_t id,
                                      uint64_t row_count, struct spec_error *reterr)
{
    struct sc_store_part parts[SC_LIMIT_LAYERS];
    const struct sc_store_record_extent record = {.is_order = true,
                                                  .copy = derived->copy,
                                                  .probe_row_bytes = derived->probe_row_bytes,
                                                  .probe_tag_offset = derived->probe_tag_offset,
                                                  .tag_offset = derived->tag_offset,
                                                  .row_offset = derived->row_offset,
                                                  .stride = derived->stride,
                                                  .permuted_at_ns = derived->permuted_at_ns,
                                                  .part_count = derived->part_count,
                                                  .parts = parts};
    uint32_t layers = store->shape.layer_count,
             each = sc_store_record_permutation_layers(row_count);
    spec_status status = SPEC_OK;
    struct sc_store_append append;
    for (uint32_t i = 0; i < derived->part_count; i++) {
        parts[i] = derived->parts[i];
        parts[i].segment = store->disk.segments[parts[i].segment].number;
    }
    for (uint32_t layer = 0; layer < layers && status == SPEC_OK; layer += each) {
        sc_store_append_begin(store, &append);
        sc_store_append_frame(&append);
        sc_store_record_encode_permutation(&append.writer, id, derived->copy, layer, derived->slots,
                                           row_count,
                                           layers - layer < each ? layers - layer : each);
        status = sc_store_append_commit(store, &append, reterr);
    }
    if (status != SPEC_OK)
        return status;
    sc_store_append_begin(store, &append);
    sc_store_append_frame(&append);
    sc_store_record_encode_section(&append.writer, id, &record);
    return sc_store_append_commit(store, &append, reterr);
}

/* Returns the time of the record: later than that of the copy before, whatever the clock says,
 * since others tell by it which one is newer. */
static uint64_t permuted_at(const struct sc_store *store, const struct sc_store_section *before)
{
    uint64_t now_ns = sc_exec_wall_ns(store->params.exec);
    return before != NULL && before->permuted_at_ns >= now_ns ? before->permuted_at_ns + 1 : now_ns;
}

spec_status sc_store_permutation_commit(struct sc_store *store, uint64_t extent_id,
                                        struct spec_error *reterr)
{
    struct sc_store_extent_entry *extent = sc_store_table_extent(&store->table, extent_id);
    struct sc_store_section *derived = atomic_load(&extent->permutation);
    uint64_t bytes =
        sc_store_record_bytes_permutation(extent->row_count, store->shape.layer_count) +
        sc_store_record_bytes_parts(derived->part_count);
    spec_status status = sc_store_tier_sync(store, derived->parts, derived->part_count, reterr);
    if (status == SPEC_OK && !sc_store_log_reserve(store, bytes))
        return sc_fail(reterr, SPEC_E_NO_SPACE, "%s: no room for the log in disk_bytes",
                       store->dir);
    if (status != SPEC_OK)
        return status;
    pthread_mutex_lock(&store->log.lock);
    derived->permuted_at_ns = permuted_at(store, extent->older_permutation);
    if (extent->live_count == 0)
        status = sc_fail(reterr, SPEC_E_DROPPED, "its pieces are void");
    else
        status = permutation_append(store, derived, extent_id, extent->row_count, reterr);
    pthread_mutex_unlock(&store->log.lock);
    sc_store_log_unreserve(store, bytes);
    if (status == SPEC_OK) /* leases count from now: a follower may have read before */
        sc_store_rows_leave(store, extent_id);
    else if (status != SPEC_E_DROPPED)
        sc_store_pause(store, status, "writing the log");
    return status;
}
