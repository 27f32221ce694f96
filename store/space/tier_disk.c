/* tier_disk: the disk as a tier: segment files and offsets. Contract: store/space/tier.h.
 * Writes are in segment.c, which creates the files. */
#include "store/space/tier.h"

#include "store/internal.h"
#include "store/load.h"

static struct sc_io_file *file_of(const struct sc_store *store, uint32_t segment)
{
    return store->disk.segments[segment].file;
}

void sc_store_tier_aim(const struct sc_store *store, struct sc_io_op *op,
                       struct sc_store_where where, uint64_t bytes)
{
    op->kind = SC_IO_READ;
    op->file = file_of(store, where.segment);
    op->offset = where.offset;
    op->bytes = bytes;
}

bool sc_store_tier_aim_written(struct sc_store *store, struct sc_io_op *op,
                               struct sc_store_where where, uint64_t bytes)
{
    pthread_mutex_lock(&store->disk.lock);
    sc_store_tier_aim(store, op, where, bytes);
    pthread_mutex_unlock(&store->disk.lock);
    return op->file != NULL;
}

void sc_store_tier_read(struct sc_store *store, struct sc_io_op *const *ops, uint64_t count)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < count; i++)
        bytes += ops[i]->bytes;
    sc_store_count(&store->counts.read_bytes, bytes);
    sc_store_count(&store->counts.read_ops, count);
    sc_io_submit(store->io, ops, count);
}

void sc_store_tier_raise(struct sc_store *store, struct sc_io_op *const *ops, uint64_t count,
                         uint32_t io_class)
{
    sc_io_raise(store->io, ops, count, io_class);
}

void sc_store_tier_unread(struct sc_store *store, const struct sc_io_op *op)
{
    atomic_fetch_sub_explicit(&store->counts.read_bytes, op->bytes, memory_order_relaxed);
    atomic_fetch_sub_explicit(&store->counts.read_ops, 1, memory_order_relaxed);
}

void sc_store_tier_hold(struct sc_store *store, uint64_t bytes)
{
    sc_io_hold(store->io, bytes);
}

void sc_store_tier_release(struct sc_store *store, uint64_t bytes)
{
    sc_io_release(store->io, bytes);
}

spec_status sc_store_tier_sync(struct sc_store *store, const struct sc_store_part *parts,
                               uint32_t part_count, struct spec_error *reterr)
{
    spec_status status = SPEC_OK;
    for (uint32_t i = 0; i < part_count && status == SPEC_OK; i++)
        if (i == 0 || parts[i].segment != parts[i - 1].segment)
            status = sc_io_file_sync(store->io, file_of(store, parts[i].segment), reterr);
    return status;
}

void sc_store_device(const struct sc_store *store, struct sc_store_device *ret_device)
{
    struct sc_io_cost cost;
    sc_io_cost(store->io, &cost);
    *ret_device = (struct sc_store_device){
        .bytes_per_s = cost.bytes_per_s, .op_ns = cost.op_ns, .is_measured = cost.is_measured};
}
