/* alloc_extent: allocates the pages of an extent's layers, and the log bytes for its records.
 * Threads: any; the space lock.
 * Tests: tests/unit/store/test_store.c, test_quarantine.c, tests/fault/test_store_faults.c */
#include "store/internal.h"
#include "store/log/where.h"

#define PAGE ((uint64_t)SC_IO_PAGE_BYTES)

uint64_t sc_store_parts_bytes(const struct sc_store_part *parts, uint32_t part_count,
                              uint64_t stride)
{
    uint64_t pages = 0;
    for (uint32_t i = 0; i < part_count; i++)
        pages += sc_store_part_pages(&parts[i], stride);
    return pages * PAGE;
}

/* Space lock held. Rows leave room for their quantised rows, and for those still due: rows without
 * them cannot be selected from. */
static bool parts_take(struct sc_store *store, uint64_t stride, uint64_t quant_stride,
                       struct sc_store_part *parts, uint32_t *ret_part_count)
{
    uint64_t due = store->disk.quant_due + quant_stride;
    if (!sc_store_parts_take(store, stride, parts, ret_part_count))
        return false;
    if (quant_stride > 0 &&
        !sc_store_layers_fit(store, quant_stride,
                             (due * store->shape.layer_count + quant_stride - 1) / quant_stride)) {
        sc_store_parts_free(store, parts, *ret_part_count, stride);
        return false;
    }
    store->disk.quant_due = due;
    return true;
}

void sc_store_quant_due_give(struct sc_store *store, uint64_t quant_stride)
{
    if (quant_stride == 0)
        return;
    pthread_mutex_lock(&store->disk.lock);
    SC_ASSERT(store->params.poison, store->disk.quant_due >= quant_stride);
    store->disk.quant_due -= quant_stride;
    pthread_mutex_unlock(&store->disk.lock);
}

spec_status sc_store_extent_alloc(struct sc_store *store, uint64_t stride, uint64_t log_bytes,
                                  uint64_t quant_stride, struct sc_store_part *parts,
                                  uint32_t *ret_part_count, struct spec_error *reterr)
{
    uint64_t now_ns = sc_exec_now_ns(store->params.exec);
    pthread_mutex_lock(&store->disk.lock);
    bool waits = now_ns < store->disk.retry_ns;
    bool fits = !waits && sc_store_log_take(store, log_bytes), has_log = fits;
    if (fits && !parts_take(store, stride, quant_stride, parts, ret_part_count))
        fits = sc_store_quarantine_release_some(store, now_ns, SC_STORE_RELEASE_MAX) > 0 &&
               parts_take(store, stride, quant_stride, parts, ret_part_count);
    for (uint32_t i = 0; fits && i < *ret_part_count; i++)
        store->disk.segments[parts[i].segment].users++;
    if (fits)
        sc_store_reserve_add(store, sc_store_parts_bytes(parts, *ret_part_count, stride));
    else if (has_log)
        store->share.reserved -= log_bytes;
    bool wakes = sc_store_maker_wake(store);
    pthread_mutex_unlock(&store->disk.lock);
    if (wakes)
        sc_exec_post(store->params.exec, &store->disk.maker, SC_IO_CLASS_WRITER);
    if (fits)
        return SPEC_OK;
    sc_store_count(&store->counts.no_space, 1);
    return sc_fail(reterr, SPEC_E_NO_SPACE,
                   waits ? "%s failed lately, nothing is stored for %llu s"
                         : "%s: no room for an extent in disk_bytes (%llu)",
                   store->dir,
                   waits ? SC_STORE_RETRY_NS / 1000000000u
                         : (unsigned long long)store->disk.bytes_max);
}

void sc_store_extent_free(struct sc_store *store, const struct sc_store_part *parts,
                          uint32_t part_count, uint64_t stride, uint64_t log_bytes)
{
    pthread_mutex_lock(&store->disk.lock);
    sc_store_parts_free(store, parts, part_count, stride);
    sc_store_reserve_sub(store, sc_store_parts_bytes(parts, part_count, stride));
    SC_ASSERT(store->params.poison, store->share.reserved >= log_bytes);
    store->share.reserved -= log_bytes;
    pthread_mutex_unlock(&store->disk.lock);
}

void sc_store_segment_avoid(struct sc_store *store, uint32_t index)
{
    pthread_mutex_lock(&store->disk.lock);
    store->disk.segment_begin = index + 1;
    pthread_mutex_unlock(&store->disk.lock);
}
