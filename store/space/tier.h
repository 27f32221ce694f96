/* tier: reads and writes the bytes of extents. Planners name places (store/log/where.h), not
 * files.
 *
 *   scan_plan, gather_plan, selector_plan -> inflight.c --\                /-- segment.c,
 *                                                          \              /    alloc_extent.c,
 *                                                           \            /     page_map.c
 *   section, compactor -> readback.c ------------------------+- tier.h ---+
 *   pack.c (windows of what is stored) ---------------------/   disk       \-- io.h: files
 *
 * The only tier is the disk (tier_disk.c): a segment file's index and an offset. A second tier
 * would use `segment` numbers from segment_max on, which other layers only pass on.
 *
 * Invariants: all reads and writes through here are counted; nothing is verified.
 * Threads: any.
 * Tests: tests/unit/store/test_store.c, test_flight.c, tests/fault/test_store_faults.c */
#ifndef SC_STORE_SPACE_TIER_H
#define SC_STORE_SPACE_TIER_H

#include "store/io/io.h"
#include "store/log/where.h"

struct sc_store;
struct sc_store_write;

/* Sets op to read [where.offset, + bytes). */
void sc_store_tier_aim(const struct sc_store *store, struct sc_io_op *op,
                       struct sc_store_where where, uint64_t bytes);
/* The same for bytes that may never have been written; takes the space lock, because files may be
 * created meanwhile. false: no file. */
bool sc_store_tier_aim_written(struct sc_store *store, struct sc_io_op *op,
                               struct sc_store_where where, uint64_t bytes);
/* Queues prepared reads; never blocks. */
void sc_store_tier_read(struct sc_store *store, struct sc_io_op *const *ops, uint64_t count);
/* Moves queued reads to a higher class (sc_io_raise). */
void sc_store_tier_raise(struct sc_store *store, struct sc_io_op *const *ops, uint64_t count,
                         uint32_t io_class);
/* Uncounts a read that ended with SPEC_E_DROPPED. */
void sc_store_tier_unread(struct sc_store *store, const struct sc_io_op *op);
/* As sc_io_hold, sc_io_release. */
void sc_store_tier_hold(struct sc_store *store, uint64_t bytes);
void sc_store_tier_release(struct sc_store *store, uint64_t bytes);

/* Queues count <= SC_STORE_WRITES_AT_ONCE windows in one submission; they wait if their file is
 * being created. Returns those whose file failed: the caller ends them. `writes` is overwritten. */
struct sc_store_write *sc_store_tier_write(struct sc_store *store, struct sc_store_write **writes,
                                           uint64_t count);
/* Completes these with NO_SPACE on the caller's stack. */
void sc_store_tier_fail(struct sc_store_write *writes);
/* Makes what was written to these parts durable. Blocks. */
spec_status sc_store_tier_sync(struct sc_store *store, const struct sc_store_part *parts,
                               uint32_t part_count, struct spec_error *reterr);

#endif
