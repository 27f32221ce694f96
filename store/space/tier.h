/* The tier: what keeps the bytes of extents and moves them. Rows, tags, probe rows and codes are
 * read and written through these calls alone. Callers know no file: a planner of reads names a
 * place (store/rows/where.h), a writer a window of a part.
 *
 *   scan_plan, gather_plan, selector_plan -> inflight.c --\                /-- segment.c,
 *                                                          \              /    alloc_extent.c,
 *                                                           \            /     page_map.c
 *   section, compactor -> readback.c ------------------------+- tier.h ---+
 *   pack.c (windows of what is stored) ---------------------/   disk       \-- io.h: files
 *
 * There is one, the disk (tier_disk.c): a place is an index of a segment file and an offset in it.
 * A second tier would use other numbers in a part's `segment`, from segment_max on; between
 * store/rows/where.h and here those are only passed on.
 *
 * Holds: an operation that was aimed names its place; what was read or written through here is
 * counted.
 * Does not: verify, plan, say where an extent lies, keep what it read.
 * Threads: any.
 * Tests: tests/unit/store/test_store.c, test_flight.c, tests/fault/test_store_faults.c */
#ifndef SC_STORE_SPACE_TIER_H
#define SC_STORE_SPACE_TIER_H

#include "store/io/io.h"
#include "store/rows/where.h"

struct sc_store;
struct sc_store_write;

/* A read of bytes [where.offset, + bytes); its other members are the caller's. */
void sc_store_tier_aim(const struct sc_store *store, struct sc_io_op *op,
                       struct sc_store_where where, uint64_t bytes);
/* The same for a caller whose bytes may never have been written, at any time: it takes the space
 * lock, as files may be made meanwhile. false: there is no file, so nothing was written there. */
bool sc_store_tier_aim_written(struct sc_store *store, struct sc_io_op *op,
                               struct sc_store_where where, uint64_t bytes);
/* Queues reads that were aimed; never blocks. */
void sc_store_tier_read(struct sc_store *store, struct sc_io_op *const *ops, uint64_t count);
/* Moves those that still stand in a queue to a higher class (sc_io_raise). */
void sc_store_tier_raise(struct sc_store *store, struct sc_io_op *const *ops, uint64_t count,
                         uint32_t io_class);
/* A read that ended with SPEC_E_DROPPED: the device never saw it. */
void sc_store_tier_unread(struct sc_store *store, const struct sc_io_op *op);
/* Bytes that were read and wait for their consumer (hold), and that wait no more (release). */
void sc_store_tier_hold(struct sc_store *store, uint64_t bytes);
void sc_store_tier_release(struct sc_store *store, uint64_t bytes);

/* Queues windows of what is stored, in one call to the back end; those whose segment file is still
 * being made wait for it. Returns those whose file could not be made: the caller ends them.
 * count <= SC_STORE_WRITES_AT_ONCE; the list is overwritten. */
struct sc_store_write *sc_store_tier_write(struct sc_store *store, struct sc_store_write **writes,
                                           uint64_t count);
/* Ends these, on the caller's stack: each is done with NO_SPACE. */
void sc_store_tier_fail(struct sc_store_write *writes);
/* What was written to these parts is durable once this returns. Blocks. */
spec_status sc_store_tier_sync(struct sc_store *store, const struct sc_store_part *parts,
                               uint32_t part_count, struct spec_error *reterr);

#endif
