/* write_through: copies what a pass writes to host memory: a conversation's next turn loads it.
 *
 *   layer packed     a slab is begun for each piece, if there is room for rows nobody asked for
 *   window written   the completion copies its tags and rows to their slabs
 *   committed        slabs are published, except of a piece with skipped rows; else abandoned
 *
 * Invariants: a slab is found when its piece is, and is complete: a commit follows all writes. The
 * caller of a store only begins slabs. Tags are verified when a slab is used.
 * Threads: begin, layer: the extent's producer; window: any, for different bytes; end: the
 * committer.
 * Tests: tests/unit/store/test_write_through.c */
#ifndef SC_STORE_WRITE_WRITE_THROUGH_H
#define SC_STORE_WRITE_WRITE_THROUGH_H

#include "store/write/extent.h"

struct sc_host_tier_memory_slab;

/* Allocates all extents' slab pointers if writes go to the host tier. Returns false without
 * memory. */
bool sc_store_write_through_open(struct sc_store *store);
void sc_store_write_through_close(struct sc_store *store);

void sc_store_write_through_layer_begin(struct sc_store_extent *extent);
/* Called when a compacted extent of one piece begins. If it is not written through completely, it
 * keeps the layers for which `inherits` is set before they are packed: host memory had these.
 * slabs: [layer_count], borrowed until commit or discard; NULL: none. */
void sc_store_write_through_layer_inherit(struct sc_store_extent *extent,
                                          struct sc_host_tier_memory_slab **slabs);
void sc_store_write_through_layer_layer(struct sc_store_extent *extent, uint32_t layer);
void sc_store_write_through_layer_window(struct sc_store_extent *extent,
                                         const struct sc_store_write *write);
/* Pieces from piece_first on got ids from first_id on; `skip` rows of the first are skipped.
 * first_id 0: not committed. */
void sc_store_write_through_layer_end(struct sc_store_extent *extent, uint32_t piece_first,
                                      uint32_t skip, uint64_t first_id);

#endif
